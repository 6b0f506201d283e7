"""A user's script in a large project that submits again and again; nothing in it changes."""

import json
import os
import sys
import time
from pathlib import Path

import kinetic


@kinetic.run(accelerator="cpu")
def nothing() -> None:
    return None


def look_at(folder: str) -> int:
    """List a tree and stat its files: the least that shows whether it changed."""
    count = 0
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            count += look_at(entry.path)
        else:
            entry.stat(follow_symlinks=False)
            count += 1
    return count


def one_round() -> dict[str, float]:
    began = time.perf_counter()
    look_at(str(Path(__file__).parent))
    floor = time.perf_counter() - began
    began = time.perf_counter()
    handle = nothing.run_async()
    submit = time.perf_counter() - began
    handle.result()  # Otherwise the job would run during the next round.
    return {"floor": floor, "submit": submit}


class Counting:
    """A store that counts its requests, and how often a context is written."""

    def __init__(self, store) -> None:
        self.requests: list[str] = []
        self.context_writes = 0
        self._store = store

    def limited(self, limit):
        return self

    def __getattr__(self, method):
        real = getattr(self._store, method)
        if method == "now" or not callable(real):
            return real  # `now` of a folder is this machine's clock, not a request.

        def counted(name, *args, **kwargs):
            self.requests.append(f"{method} {name}")
            if name.startswith("contexts/") and method in ("write", "writer", "upload"):
                self.context_writes += 1
            return real(name, *args, **kwargs)

        return counted


def requests() -> dict[str, object]:
    """Submit once through a store that counts."""
    from kinetic.backends.local.backend import LocalBackend
    from kinetic.jobs.services import Services
    from kinetic.settings.settings import Settings
    from kinetic.submit.options import check_options
    from kinetic.submit.request import request_of
    from kinetic.submit.submit import submit
    from kinetic_payload.stores import open_store
    from kinetic_payload.stores.store import parse_location

    function = nothing.__wrapped__
    options = check_options(accelerator="cpu")
    settings = Settings.from_environment(**options.overrides)
    request = request_of(options, function, settings, environ={}, cwd=Path.cwd())
    home = Path(request.settings.home.value)
    store = open_store(parse_location(str(home / "store")))
    counting = Counting(store)
    handle = submit(
        request, function, (), {}, services=Services(counting, LocalBackend(home, store))
    )
    counted = list(counting.requests)
    handle.result()
    return {"requests": counted, "context_writes": counting.context_writes}


if __name__ == "__main__":
    # The first round also imports the modules that submitting needs.
    first = one_round()
    found = [one_round() for _ in range(int(sys.argv[2]))]
    result = {"first": first["submit"], "rounds": found, **requests()}
    Path(sys.argv[1]).write_text(json.dumps(result))
