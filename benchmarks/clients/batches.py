"""A user's script that submits batches; the outcomes of large ones are written without running them."""

import base64
import hashlib
import http.client
import json
import pickle
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from urllib.parse import quote, urlsplit

import cloudpickle

import kinetic
from kinetic.jobs.services import connect, jobs_location
from kinetic.settings.settings import Settings
from kinetic.target import Target
from kinetic_payload.layout import JobObjects
from kinetic_payload.records.encode import encode
from kinetic_payload.records.host_outcome import HostOutcome, Pickled
from kinetic_payload.records.outcome import Outcome
from kinetic_payload.threads import cores

THREADS = 32


@kinetic.run(accelerator="cpu")
def same(x: int) -> int:
    return x


def seconds(action):
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def stopped(count: int):
    """Submit a batch, and stop it at once."""
    batch = same.run_async_map(range(count), max_concurrent=1)
    batch.cancel()
    return batch


def fill(batch) -> list[str]:
    """Write the outcome of each input, as its worker would; return their names."""
    settings = Settings.from_environment()
    place = jobs_location(settings, "local")
    services = connect("local", Target.in_settings(settings), place, settings)
    jobs = batch.jobs

    def write(index: int) -> str:
        job_id = jobs[index].job_id
        value = pickle.dumps(index)
        digest = hashlib.sha256(value).hexdigest()
        inline = base64.b64encode(value).decode()
        report = HostOutcome(
            job_id=job_id, attempt=1, host=0, succeeded=True, reason="returned", phase="report", exit_code=0,
            value=Pickled(size=len(value), digest=digest, inline=inline), python=sys.version.split()[0],
        )  # fmt: skip
        outcome = Outcome(job_id=job_id, status="succeeded", attempt=1, host=0, report=report)
        name = JobObjects(job_id).outcome
        services.store.write(name, services.sign(encode(outcome), name))
        return name

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(write, range(len(batch))))


def ask_for_all(endpoint: str, names: list[str], method: str, path: str, query: str) -> None:
    """Make a bare request for each object, over as many connections."""
    local = threading.local()

    def ask(name: str) -> bool:
        if not hasattr(local, "connection"):
            local.connection = http.client.HTTPConnection(urlsplit(endpoint).netloc)
        url = f"{path}/storage/v1/b/bench-0/o/{quote(name, safe='')}{query}"
        local.connection.request(method, url)
        with local.connection.getresponse() as response:
            response.read()
            return response.status in (200, 204)

    with ThreadPoolExecutor(THREADS) as pool:
        assert all(pool.map(ask, names))


def in_bucket(rounds: int, large: int, small: int, endpoint: str) -> dict[str, list]:
    def requests(method: str) -> bytes:
        address = f"{endpoint}/_kinetic/requests"
        with urllib.request.urlopen(urllib.request.Request(address, method=method)) as found:
            return found.read()

    stopped(1).cleanup()  # Uploads the project.
    found: dict[str, list] = {}
    for count in (100, large):
        for _ in range(rounds):
            requests("DELETE")
            began = time.perf_counter()
            batch = same.run_async_map(range(count), max_concurrent=1)
            took = time.perf_counter() - began
            sent = len(json.loads(requests("GET")))
            found.setdefault(f"submit {count}", []).append({"seconds": took, "requests": sent})
            batch.cancel()
            batch.cleanup()
    batch = stopped(small)
    names = fill(batch)
    for _ in range(rounds):
        collect = partial(kinetic.attach_batch(batch.group_id).results, cleanup=False)
        found.setdefault("results", []).append(seconds(collect))
        get_all = partial(ask_for_all, endpoint, names, "GET", "/download", "?alt=media")
        found.setdefault("gets", []).append(seconds(get_all))
    groups = [batch.group_id]
    for _ in range(rounds):
        batch = stopped(small)
        fill(batch)
        batch.results()
        found.setdefault("clean-up", []).append(seconds(batch.statuses))
        assert batch.status_counts() == {"NOT_FOUND": small}
        batch = stopped(small)
        delete_all = partial(ask_for_all, endpoint, fill(batch), "DELETE", "", "")
        found.setdefault("deletes", []).append(seconds(delete_all))
        batch.cleanup()
    batch = stopped(large)
    fill(batch)
    for _ in range(rounds):
        again = kinetic.attach_batch(batch.group_id)
        found.setdefault("statuses", []).append(seconds(again.statuses))
    found["groups"] = [*groups, batch.group_id]
    return found


def collect(group: str, clients: str) -> float:
    """Take all values, one after another; return the most memory that this process has had, in MB."""
    sys.path.append(clients)
    from memory import peak

    for _ in kinetic.attach_batch(group).iter_results():
        pass
    return peak()


def here(rounds: int, inputs: int, clients: str) -> dict[str, list]:
    sys.path.append(clients)
    from bare import INNER

    def bare(folder: Path, index: int) -> int:
        call, value = folder / f"{index}.call", folder / f"{index}.value"
        call.write_bytes(cloudpickle.dumps((same.__wrapped__, (index,))))
        subprocess.run([sys.executable, "-c", INNER, str(call), str(value)], check=True)
        return pickle.loads(value.read_bytes())

    def pool(folder: Path) -> None:
        with ThreadPoolExecutor(cores()) as threads:
            found = threads.map(lambda index: bare(folder, index), range(inputs))
            assert list(found) == list(range(inputs))

    def batch() -> None:
        assert same.run_async_map(range(inputs)).results() == list(range(inputs))

    same.run_async_map([0]).results()
    found: dict[str, list] = {"batch": [], "pool": []}
    for _ in range(rounds):
        found["batch"].append(seconds(batch))
        with tempfile.TemporaryDirectory() as folder:
            found["pool"].append(seconds(lambda: pool(Path(folder))))
    return found


if __name__ == "__main__":
    path, action, *rest = sys.argv[1:]
    if action == "collect":
        measured = collect(*rest)
    elif action == "bucket":
        measured = in_bucket(*map(int, rest[:3]), rest[3])
    else:
        measured = here(int(rest[0]), int(rest[1]), rest[2])
    Path(path).write_text(json.dumps(measured))
