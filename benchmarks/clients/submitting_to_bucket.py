"""A user's script that submits again and again to a bucket; the server lists its requests."""

from __future__ import annotations

import json
import os
import sys
import time
import urllib.request
from pathlib import Path

BUCKET = "bench-99"


def main() -> None:
    found, endpoint, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
    os.environ.update(  # noqa: TID251 - as a user's shell has it
        STORAGE_EMULATOR_HOST=endpoint, KINETIC_STORE=f"gs://{BUCKET}"
    )
    import kinetic
    from kinetic.jobs.runner import runner_bundle
    from kinetic.jobs.services import Services
    from kinetic.settings.settings import Settings
    from kinetic.submit.options import check_options
    from kinetic.submit.request import request_of
    from kinetic.submit.submit import submit
    from kinetic_payload.stores import open_store
    from kinetic_payload.stores.store import parse_location
    from kinetic_servers.fakes import FakeBackend

    class Idle(FakeBackend):
        """Starts nothing and checks nothing: all requests to the server come from the submit."""

        def environment(self, request, project):
            runner_bundle(Path(request.settings.home.value))  # As every backend does.
            return super().environment(request, project)

        def start(self, launch) -> None:
            pass

    def nothing() -> None:
        return None

    function = kinetic.run(accelerator="cpu")(nothing).__wrapped__
    options = check_options(accelerator="cpu")
    settings = Settings.from_environment(**options.overrides)
    request = request_of(options, function, settings, environ={}, cwd=Path.cwd())
    store = open_store(parse_location(f"gs://{BUCKET}"))
    services = Services(store, Idle(store))

    def one_round() -> dict[str, float]:
        began = time.perf_counter()
        look_at(str(Path(__file__).parent))
        floor = time.perf_counter() - began
        call(endpoint, "DELETE")
        began = time.perf_counter()
        submit(request, function, (), {}, services=services)
        taken = time.perf_counter() - began
        requests = json.loads(call(endpoint, "GET"))
        return {
            "floor": floor,
            "submit": taken,
            "requests": len(requests),
            "bytes": sum(each["bytes_in"] for each in requests),
            "context_bytes": sum(
                each["bytes_in"] for each in requests if each["name"].startswith("contexts/")
            ),
        }

    one_round()
    Path(found).write_text(json.dumps({"rounds": [one_round() for _ in range(rounds)]}))


def look_at(folder: str) -> None:
    """List a tree and stat its files: the least that shows whether it changed."""
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            look_at(entry.path)
        else:
            entry.stat(follow_symlinks=False)


def call(endpoint: str, method: str) -> bytes:
    request = urllib.request.Request(f"{endpoint}/_kinetic/requests", method=method)
    with urllib.request.urlopen(request) as answer:
        return answer.read()


if __name__ == "__main__":
    main()
