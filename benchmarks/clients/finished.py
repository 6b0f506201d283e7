"""A store that is filled with finished jobs, or read by a plain script, which is the floor of a list."""

from __future__ import annotations

import http.client
import json
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote, urlsplit

THREADS = 32
RECORDS = ("handle.json", "outcome.json")


def fill(count: int) -> list[str]:
    """Run one job, and write *count* copies of its record and its outcome, each with its signature."""
    import kinetic
    from kinetic.jobs.records import find_outcome, find_record
    from kinetic.jobs.services import connect, jobs_location
    from kinetic.names import job_id_of
    from kinetic.settings.settings import Settings
    from kinetic.target import Target
    from kinetic_payload.layout import JobObjects
    from kinetic_payload.records.encode import encode

    @kinetic.run(accelerator="cpu")
    def nothing() -> None:
        return None

    job = nothing.run_async()
    job.result(cleanup=False)
    settings = Settings.from_environment()
    target = Target.in_settings(settings)
    services = connect("local", target, jobs_location(settings, "local"), settings)
    record = find_record(services.store, job.job_id)
    outcome = find_outcome(services.store, job.job_id)
    assert record is not None
    assert outcome is not None
    job.cleanup()
    now = datetime.now(UTC)
    times = [now - timedelta(seconds=number) for number in range(count)]
    names = [job_id_of("cpu", "nothing", when, f"{n:07x}") for n, when in enumerate(times)]

    def write(job_id: str, when: datetime) -> None:
        objects = JobObjects(job_id)
        for name, original in ((objects.handle, record.record), (objects.outcome, outcome.record)):
            own = {"created_at": when.isoformat()}
            if original is outcome.record:
                own = {"signature": None}
            copy = replace(original, job_id=job_id, **own)
            services.store.write(name, services.sign(encode(copy), name))

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(write, names, times))
    return [str(services.store.location), *names]


def read(location: str, names: list[str]) -> list[str]:
    """Read and decode all records, in the simplest way."""
    endpoint = os.environ.get("STORAGE_EMULATOR_HOST")  # noqa: TID251 - the library's own
    if endpoint is None:
        paths = [f"{location}/{name}/{each}" for name in names for each in RECORDS]
        return [json.loads(Path(path).read_bytes())["job_id"] for path in paths]
    address, bucket = urlsplit(endpoint).netloc, location.removeprefix("gs://")
    local = threading.local()

    def get(name: str) -> str:
        connection = getattr(local, "connection", None)
        if connection is None:
            connection = local.connection = http.client.HTTPConnection(address)
        connection.request(
            "GET", f"/download/storage/v1/b/{bucket}/o/{quote(name, safe='')}?alt=media"
        )
        return str(json.loads(connection.getresponse().read())["job_id"])

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(get, [f"{name}/{each}" for name in names for each in RECORDS]))


def main() -> None:
    found, action = Path(sys.argv[1]), sys.argv[2]
    if action == "fill":
        found.write_text(json.dumps(fill(int(sys.argv[3]))))
        return
    location, *names = json.loads(Path(sys.argv[3]).read_text())
    began = time.perf_counter()
    assert len(read(location, names)) == len(RECORDS) * len(names)
    found.write_text(json.dumps({"seconds": time.perf_counter() - began}))


if __name__ == "__main__":
    main()
