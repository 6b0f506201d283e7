"""A user's script whose jobs run on a Kubernetes; the floors in turns with them."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import kinetic

FOUND, CLIENTS, GIVEN, ACTION, COUNT = sys.argv[1:6]
"""The file of the findings, the folder of clients, facts about the bed as JSON, what to do, how often."""

sys.path.append(CLIENTS)
from sent import Bare, Request, record  # noqa: E402

given = json.loads(GIVEN)
options: dict[str, Any] = {
    "accelerator": "cpu",
    "container_image": given["image"],
    "pod_overrides": given["overrides"],
}
NEVER: dict[str, Any] = {"memory": "4000Gi"}
"""Pods that ask for it wait for ever, and use nothing."""
SETTLING = 5.0


@kinetic.run(**options, **NEVER)
def nothing() -> None:
    return None


@kinetic.run(**options)
def one() -> int:
    return 1


@kinetic.run(**options)
def since_start() -> float:
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    ticks = Path("/proc/1/stat").read_text().rpartition(")")[2].split()[19]
    return now - int(ticks) / os.sysconf("SC_CLK_TCK")


@kinetic.run(**options)
def sleeping() -> None:
    threading.Event().wait(600)


def submit(rounds: int) -> Any:
    """Submit again and again; then ask for the status of a job that waits, and for the reason."""
    from kinetic.jobs.status import explained, look

    sent, bare = record(), Bare(given["ca"])

    def one_round() -> dict[str, float]:
        sent.clear()
        began = time.perf_counter()
        job = nothing.run_async()
        taken = time.perf_counter() - began
        requests = list(sent)
        job.cancel()
        job.cleanup()
        return {
            "submit": taken,
            "floor": bare.send(requests),
            **counted(requests),
        }

    nothing.run_async()  # Makes the key of the namespace, which no other submit does.
    rounds_found = [one_round() for _ in range(rounds + 1)][1:]
    job = nothing.run_async()
    sent.clear()
    job.status()
    status = counted(sent)
    view = look(job._record, job._services)
    sent.clear()
    why = explained(job._record, view, job._services)
    assert "memory" in why, why
    return {"rounds": rounds_found, "status": status, "diagnosis": counted(sent)}


def counted(requests: list[Request]) -> dict[str, int]:
    """Count the requests to each side."""
    to_cluster = sum(each.to_cluster for each in requests)
    return {"to_cluster": to_cluster, "to_bucket": len(requests) - to_cluster}


def end(rounds: int) -> Any:
    """Wait for jobs; their outcomes in the bucket and a bare watch show when they ended."""
    from kinetic_payload.layout import JobObjects

    sent, bare = record(), Bare(given["ca"])

    def one_round() -> dict[str, float]:
        job = one.run_async()
        made = next(each for each in reversed(sent) if each.to_cluster)
        pods = f"/api/v1/namespaces/{job.namespace}/pods?watch=1&timeoutSeconds=300&labelSelector="
        url = made.origin + pods + quote(f"kinetic.dev/job-id={job.job_id}")
        headers = {"Authorization": made.headers["Authorization"]}
        signal = watching.submit(bare.end_of_container, url, headers)
        sent.clear()
        assert job.result(cleanup=False) == 1
        now = time.time()
        requests = list(sent)
        bucket = job.bucket_name.removeprefix("gs://")
        place = f"/storage/v1/b/{bucket}/o/{quote(JobObjects(job.job_id).outcome, safe='')}"
        stored = bare.get(os.environ["STORAGE_EMULATOR_HOST"] + place, {})  # noqa: TID251
        written = datetime.fromisoformat(stored["timeCreated"]).timestamp()
        after = [each for each in requests if each.when >= written and "watch=" not in each.path]
        return {
            "outcome": now - written,
            "signal": now - signal.result(),
            "floor": bare.send(after),
        }

    with ThreadPoolExecutor(1) as watching:
        return {"rounds": [one_round() for _ in range(rounds + 1)][1:]}


def fill(count: int) -> Any:
    """Make *count* jobs that list as a job does that was just submitted; they are suspended."""
    from kinetic.jobs.records import find_record
    from kinetic_payload.layout import JobObjects
    from kinetic_payload.records.encode import encode

    sent, bare = record(), Bare(given["ca"])
    job = nothing.run_async()
    services = job._services
    found = find_record(services.store, job.job_id)
    assert found is not None
    made = next(
        each
        for each in sent
        if each.to_cluster and each.body and each.path.partition("?")[0].endswith("/jobs")
        if "dryRun" not in each.path
    )
    suffix = job.job_id.rpartition("-")[2]

    def make(number: int) -> None:
        other = f"{number:07x}"
        job_id = job.job_id.replace(suffix, other)
        copy = replace(found.record, job_id=job_id, k8s_name=job.k8s_name.replace(suffix, other))
        name = JobObjects(job_id).handle
        services.store.write(name, services.sign(encode(copy), name))
        assert made.body is not None
        manifest = json.loads(made.body.replace(suffix.encode(), other.encode()))
        manifest["spec"]["suspend"] = True
        bare.send([replace(made, body=json.dumps(manifest).encode())])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(make, range(count)))
    return {"path": made.path.partition("?")[0], "origin": made.origin, "headers": made.headers}


def listing(rounds: int) -> Any:
    """List those jobs, with their statuses."""
    from kinetic.jobs.discover import statuses_of

    sent, bare = record(), Bare(given["ca"])
    place = given["listed"]
    url = f"{place['origin']}{place['path']}?labelSelector={quote('app=kinetic')}"
    headers = {"Authorization": place["headers"]["Authorization"], "Accept": "application/json"}

    def one_round() -> dict[str, float]:
        sent.clear()
        began = time.perf_counter()
        jobs = kinetic.list_jobs()
        statuses = statuses_of(jobs)
        taken = time.perf_counter() - began
        assert set(statuses) == {kinetic.JobStatus.PENDING}, set(statuses)
        assert len(jobs) == given["jobs"] + 1, len(jobs)
        requests = list(sent)
        began = time.perf_counter()
        assert len(bare.get(url, headers)["items"]) == len(jobs)
        return {
            "listing": taken,
            "floor": time.perf_counter() - began,
            **counted(requests),
        }

    return {"rounds": [one_round() for _ in range(rounds + 1)][1:]}


def wait(seconds: int) -> None:
    idle(seconds, lambda job: job.result())


def awaited(seconds: int) -> None:
    async def value(job: Any) -> Any:
        return await job

    idle(seconds, lambda job: asyncio.run(value(job)))


def idle(seconds: int, waiting: Callable[[Any], object]) -> None:
    """Wait for a job that sleeps; write the findings and exit once *seconds* have been measured."""
    sent = record()
    job = sleeping.run_async()
    while job.status() is not kinetic.JobStatus.RUNNING:
        threading.Event().wait(0.2)

    def measure() -> None:
        threading.Event().wait(SETTLING)
        before, used = len(sent), time.process_time()
        threading.Event().wait(seconds)
        found = {"requests": len(sent) - before, "cpu": time.process_time() - used}
        per_minute = {name: value * 60 / seconds for name, value in found.items()}
        job.cancel()
        write(per_minute)
        os._exit(0)

    threading.Thread(target=measure).start()
    waiting(job)


def start(rounds: int) -> Any:
    """Return how long after the start of its container the function began."""
    return {"rounds": [run_and_describe(since_start.run_async()) for _ in range(rounds)]}


def run_and_describe(job: Any) -> dict[str, Any]:
    return {"start": job.result(cleanup=False), "job": job.k8s_name}


def write(found: Any) -> None:
    Path(FOUND).write_text(json.dumps(found))


ACTIONS: dict[str, Callable[[int], Any]] = {
    "submit": submit,
    "end": end,
    "fill": fill,
    "list": listing,
    "wait": wait,
    "await": awaited,
    "start": start,
}

if __name__ == "__main__":
    write(ACTIONS[ACTION](int(COUNT)))
