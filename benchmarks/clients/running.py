"""A user's script whose job is packaged and uploaded, but not started: the benchmark does that."""

import json
import sys
import time
from pathlib import Path


def write_time(path: str) -> None:
    moment = time.time()
    with open(path, "w") as stream:
        stream.write(str(moment))


if __name__ == "__main__":
    from kinetic.jobs.runner import runner_bundle
    from kinetic.jobs.services import Services
    from kinetic.settings.settings import Settings
    from kinetic.submit.options import check_options
    from kinetic.submit.request import request_of
    from kinetic.submit.submit import submit
    from kinetic_payload.stores import open_store
    from kinetic_payload.stores.store import parse_location
    from kinetic_servers.fakes import FakeBackend

    class Recording(FakeBackend):
        """A backend that records a launch, and starts nothing."""

        name = "local"

        def start(self, launch) -> None:
            self.launch = launch

    options = check_options(accelerator="cpu")
    settings = Settings.from_environment(**options.overrides)
    request = request_of(options, write_time, settings, environ={}, cwd=Path.cwd())
    home = Path(request.settings.home.value)
    store = open_store(parse_location(str(home / "store")))
    time_file = str(Path(sys.argv[1]).with_name("time.txt"))
    backend = Recording(store)
    submit(request, write_time, (time_file,), {}, services=Services(store, backend))
    record = backend.launch.record
    bundle = home / "remote_runner.py"
    bundle.write_bytes(runner_bundle(home))
    found = {
        "time_file": time_file,
        "bundle": str(bundle),
        "store": str(store.location),
        "job": record.job_id,
        "digest": backend.launch.record_digest,
    }
    Path(sys.argv[1]).write_text(json.dumps(found))
