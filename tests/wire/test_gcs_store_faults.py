"""Faults of the network and the service at every operation of a bucket: retries, errors, limits, reports."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kinetic_payload.errors import PreconditionFailedError, StoreUnavailableError
from kinetic_payload.stores.gcs import GcsStore, RetryPolicy, Service
from kinetic_payload.stores.outages import OutageLimit
from kinetic_payload.stores.store import ABSENT
from kinetic_payload.testing import increment
from kinetic_servers.gcs import GcsServer

from .conftest import QUICK, open_it

PAGE = (
    "<!DOCTYPE html><html><head><title>Sign in to the hotel</title></head><body>Hello</body></html>"
)
LARGE = os.urandom(1 << 20) * 17
"""More than one request downloads."""
UPLOAD = LARGE[: (9 << 20) + 1]
"""More than one request uploads."""


class Steps:
    """Time that passes in pauses only, and in equal steps, however slow the machine is."""

    def __init__(self) -> None:
        self.now = 0.0

    def step(self, _: float) -> None:
        self.now += 0.1

    def retry(self, deadline: float, quiet: float = 3.0) -> RetryPolicy:
        return RetryPolicy(limit=deadline, quiet=quiet, clock=lambda: self.now, pause=self.step)


def hasty() -> RetryPolicy:
    """Return a retry policy of four attempts."""
    return Steps().retry(0.3)


def stat(store: GcsStore, folder: Path) -> None:
    found = store.stat("old")
    assert found is not None
    assert found.size == 3


def stat_of_nothing(store: GcsStore, folder: Path) -> None:
    assert store.stat("nothing") is None


def read(store: GcsStore, folder: Path) -> None:
    assert store.read("old") == b"old"
    assert store.read("large", start=5, end=1 << 20) == LARGE[5 : 1 << 20]


def reader(store: GcsStore, folder: Path) -> None:
    with store.reader("large") as stream:
        assert stream.read() == LARGE


def write(store: GcsStore, folder: Path) -> None:
    store.write("new", b"new")
    assert store.read("new") == b"new"


def create(store: GcsStore, folder: Path) -> None:
    written = store.write("new", b"new", if_generation=ABSENT)
    assert store.stat("new") == written


def swap(store: GcsStore, folder: Path) -> None:
    before = store.stat("old")
    assert before is not None
    written = store.write("old", b"new", if_generation=before.generation)
    assert store.stat("old") == written


def conflict(store: GcsStore, folder: Path) -> None:
    with pytest.raises(PreconditionFailedError):
        store.write("old", b"new", if_generation=ABSENT)
    assert store.read("old") == b"old"


def write_large_stream(store: GcsStore, folder: Path) -> None:
    with store.writer("new", if_generation=ABSENT) as stream:
        stream.write(UPLOAD)
    assert store.read("new") == UPLOAD


def upload_large(store: GcsStore, folder: Path) -> None:
    (folder / "source").write_bytes(UPLOAD)
    moved: list[int] = []
    written = store.upload("new", folder / "source", if_generation=ABSENT, progress=moved.append)
    assert sum(moved) == len(UPLOAD)
    assert store.stat("new") == written
    assert store.read("new") == UPLOAD


def download(store: GcsStore, folder: Path) -> None:
    moved: list[int] = []
    store.download("large", folder / "target", progress=moved.append)
    assert (folder / "target").read_bytes() == LARGE
    assert sum(moved) == len(LARGE)
    store.download("old", folder / "target")
    assert (folder / "target").read_bytes() == b"old"
    assert [path.name for path in folder.iterdir()] == ["target"]


def listing(store: GcsStore, folder: Path) -> None:
    assert [info.name for info in store.list()] == ["a/b", "large", "old"]
    assert list(store.folders()) == ["a/"]


def delete(store: GcsStore, folder: Path) -> None:
    store.delete("old")
    assert store.stat("old") is None


def delete_a_generation(store: GcsStore, folder: Path) -> None:
    found = store.stat("old")
    assert found is not None
    assert store.delete("old", if_generation=found.generation)
    assert store.stat("old") is None


def renew(store: GcsStore, folder: Path) -> None:
    found = store.stat("old")
    assert found is not None
    renewed = store.renew("old", if_generation=found.generation)
    assert renewed is not None
    assert renewed == store.stat("old")
    assert renewed.generation > found.generation


def mark(store: GcsStore, folder: Path) -> None:
    store.mark_folder("marked")
    store.mark_link("link", "old")
    assert [info.name for info in store.list("link")] == ["link"]


def count(store: GcsStore, folder: Path) -> None:
    for _ in range(3):
        increment(store, "number")
    assert store.read("number") == b"3"


OPERATIONS = [
    stat, stat_of_nothing, read, reader, write, create, swap, conflict, write_large_stream,
    upload_large, download, listing, delete, delete_a_generation, renew, mark, count,
]  # fmt: skip

FAULTS: dict[str, dict[str, Any]] = {
    **{f"status {status}": {"status": status} for status in (408, 429, 503)},
    "reset before": {"reset": "before"},
    "reset in a request": {"reset": "request"},
    "reset in an answer": {"reset": "response"},
    "answer cut short": {"reset": "response", "polite": True},
    "answer lost": {"reset": "after"},
    "page of a portal": {"page": PAGE},
    "page for 404": {"page": PAGE, "status": 404},
    "page for 403": {"page": PAGE, "status": 403},
    "page for 412": {"page": PAGE, "status": 412},
    "login demanded": {"page": PAGE, "status": 511},
    "redirect to a login": {
        "page": "",
        "status": 302,
        "location": "http://login.example/?upload_id=1",
    },
    "permanent redirect": {"page": "", "status": 308, "location": "http://login.example/"},
    "nothing at all": {"page": ""},
    "nothing, not found": {"page": "", "status": 404, "operation": "objects.[!i]*"},
    "empty JSON": {"page": "{}"},
    "JSON cut short": {"page": '{"kind": "storage#objects", "it'},
    "JSON of objects that are none": {
        "page": '{"kind": "storage#objects", "items": [5], "name": 5}'
    },
    "JSON of a list that is none": {
        "page": '{"kind": "storage#objects", "items": 5, "prefixes": 5}'
    },
    "JSON without an end": {"page": "[" * 100_000},
    "JSON, not found": {"page": '{"error": "no route matched"}', "status": 404},
    "an error without words": {"page": '{"error": {"message": null, "errors": 5}}', "status": 503},
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_succeeds_despite_every_transient_fault(
    operation: Callable[[GcsStore, Path], None],
    gcs: GcsServer,
    tmp_path: Path,
    subtests: pytest.Subtests,
) -> None:
    only_reads = operation in (read, reader, download)
    for number, (fault, what) in enumerate(FAULTS.items()):
        store = open_it(gcs, below="" if only_reads else f"/{number}")
        if number == 0 or not only_reads:
            large = LARGE if only_reads else b""
            for name, data in (("a/b", b""), ("large", large), ("old", b"old")):
                store.write(name, data)
        # Every other request of the whole operation: the first attempt at each of its steps. A request
        # that one fault hits is not counted by those after it.
        for after in range(8):
            gcs.faults.add(after=after, times=1, **what)

        with subtests.test(fault):
            operation(store, tmp_path)

        gcs.faults.clear()
        if not only_reads:
            store.delete("new")  # It may be large.


def test_retries_last_more_than_thirty_seconds_by_default() -> None:
    retry = RetryPolicy()

    assert retry.limit - retry.read - retry.longest > 30


def test_an_outage_without_end_is_reported_with_the_last_error(gcs: GcsServer) -> None:
    gcs.faults.add(status=503)

    with pytest.raises(StoreUnavailableError, match=r"look at 'o' in gs://bucket.*\(503\)"):
        open_it(gcs, hasty()).stat("o")


def test_a_captive_portal_that_stays_is_reported_by_every_operation(
    gcs: GcsServer, store: GcsStore, tmp_path: Path
) -> None:
    store.write("old", b"old")
    gcs.faults.add(page=PAGE, status=404)

    for operation in (stat, read, reader, write, listing, delete, download):
        with pytest.raises(StoreUnavailableError, match=r"captive portal.*Sign in to") as caught:
            operation(open_it(gcs, hasty()), tmp_path)
        assert "log in to it" in str(caught.value.hint)


def test_a_list_whose_pages_never_end_is_an_error(gcs: GcsServer) -> None:
    gcs.faults.add(page='{"kind": "storage#objects", "nextPageToken": "again"}')

    for lists in (GcsStore.list, GcsStore.folders):
        with pytest.raises(StoreUnavailableError, match="instead of a list of objects"):
            list(lists(open_it(gcs, hasty())))


def test_a_requested_wait_beyond_the_deadline_leaves_one_last_attempt(gcs: GcsServer) -> None:
    gcs.faults.add(status=503, retry_after=3600)
    steps, asked = Steps(), list[float]()

    def pause(seconds: float) -> None:
        asked.append(seconds)
        steps.now += seconds

    with pytest.raises(StoreUnavailableError):
        open_it(gcs, replace(steps.retry(0.3), pause=pause)).stat("o")

    assert asked == [0.3]
    assert len(gcs.requests) == 2


def test_the_check_after_a_lost_create_shares_its_deadline(gcs: GcsServer) -> None:
    gcs.faults.add(operation="objects.insert", times=1, reset="after")
    gcs.faults.add(operation="objects.get", status=503)

    with pytest.raises(StoreUnavailableError, match="write 'claim'"):
        open_it(gcs, hasty()).write("claim", b"", if_generation=ABSENT)

    looks = gcs.requests.count(operation="objects.get")
    assert gcs.requests.count(operation="objects.insert") == looks + 1 > 2


def test_a_refused_connection_is_reported() -> None:
    with socket.socket() as taken:  # Bound, and not listened to.
        taken.bind(("127.0.0.1", 0))
        gone = Service(f"http://127.0.0.1:{taken.getsockname()[1]}", anonymous=True)

        with pytest.raises(StoreUnavailableError, match="refused"):
            GcsStore("bucket", service=gone, retry=hasty()).write("o", b"")


def test_a_response_that_does_not_come_is_requested_again(gcs: GcsServer) -> None:
    gcs.faults.add(operation="objects.get", times=1, held=True)
    pauses: list[float] = []

    assert open_it(gcs, replace(QUICK, read=0.2, pause=pauses.append)).stat("o") is None

    first, *later = gcs.requests.matching(operation="objects.get")
    assert first.status == 0
    assert len(later) == len(pauses), "a slow machine may keep another one waiting"


def test_a_lost_create_is_not_confused_with_an_equal_object_of_another_writer(
    gcs: GcsServer, store: GcsStore
) -> None:
    gcs.faults.add(operation="objects.insert", times=1, reset="before")

    def meanwhile(_: float) -> None:
        store.write("claim", b"same", if_generation=ABSENT)

    with pytest.raises(PreconditionFailedError):
        open_it(gcs, replace(QUICK, pause=meanwhile)).write("claim", b"same", if_generation=ABSENT)


@pytest.mark.parametrize(("failures", "reports"), [(20, 1), (2, 0)])
def test_an_outage_is_reported_once_and_only_if_it_lasts(
    gcs: GcsServer, failures: int, reports: int
) -> None:
    gcs.faults.add(status=503, times=failures)
    reported: list[str] = []
    store = open_it(gcs, Steps().retry(10, quiet=0.5), on_outage=reported.append)

    assert store.stat("nothing") is None
    assert len(reported) == reports
    for text in reported:
        assert "gs://bucket is unavailable" in text
        assert "(503)" in text
        assert "10 s" in text


# Under a limit that many calls share


class Passing(Steps):
    """Time that passes in pauses, as long as these are."""

    def step(self, seconds: float) -> None:
        self.now += seconds


def test_many_calls_together_wait_no_longer_than_their_limit(gcs: GcsServer) -> None:
    gcs.faults.add(status=503)
    time, reported = Passing(), list[str]()
    unlimited = open_it(gcs, time.retry(150))
    store = unlimited.limited(OutageLimit(50, report=reported.append, clock=lambda: time.now))

    for _ in range(5):
        with pytest.raises(StoreUnavailableError, match=r"\(503\)"):
            store.write("new", b"")

    assert time.now <= 50
    assert len(reported) == 1
    assert "gs://bucket is unavailable" in reported[0]
    assert "50 s" in reported[0]
    gcs.faults.clear()
    unlimited.write("new", b"")  # Other operations have their own time.


def test_a_failure_beside_an_upload_that_progresses_is_not_reported(
    gcs: GcsServer, tmp_path: Path
) -> None:
    (tmp_path / "source").write_bytes(UPLOAD)
    gcs.faults.add(operation="objects.get", status=503)
    slow = gcs.faults.add(operation="objects.insert.chunk", held=True, at=1 << 20)
    time, reported, begun = Passing(), list[str](), threading.Event()
    limit = OutageLimit(50, report=reported.append, clock=lambda: time.now)
    store = open_it(gcs, time.retry(150)).limited(limit)

    with ThreadPoolExecutor(1) as pool:
        upload = pool.submit(
            store.upload, "new", tmp_path / "source", progress=lambda _: begun.set()
        )
        try:
            assert begun.wait(60)
            with pytest.raises(StoreUnavailableError):
                store.stat("old")
        finally:
            slow.release()
        upload.result()
    assert reported == []
    with pytest.raises(StoreUnavailableError):
        store.stat("old")
    assert len(reported) == 1


def test_an_outage_is_reported_however_the_pauses_before_the_limit_fall(gcs: GcsServer) -> None:
    gcs.faults.add(status=503)

    for _ in range(40):  # The pauses are random.
        time, reported = Passing(), list[str]()
        limit = OutageLimit(6, report=reported.append, clock=lambda t=time: t.now)
        with pytest.raises(StoreUnavailableError):
            open_it(gcs, time.retry(150)).limited(limit).stat("o")
        assert len(reported) == 1


def test_an_upload_that_makes_progress_may_exceed_a_limit(gcs: GcsServer, tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(UPLOAD)
    for _ in range(8):
        gcs.faults.add(operation="objects.insert.chunk", times=1, reset="request", at=1 << 19)
    time = Steps()

    limit = OutageLimit(0.15, clock=lambda: time.now)
    open_it(gcs, time.retry(150)).limited(limit).upload("new", tmp_path / "source")

    assert time.now > 0.15
    assert gcs.read("bucket", "new") == UPLOAD


@pytest.fixture
def silent_port() -> Iterator[int]:
    """Return a port of this machine that accepts no connection, as behind a firewall that drops packets."""
    with socket.socket() as full, ExitStack() as stack:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        for _ in range(4):  # More than it queues.
            one = stack.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
        yield port


def test_a_connection_that_is_not_accepted_is_abandoned_in_time(silent_port: int) -> None:
    time = Passing()
    service = Service(f"http://127.0.0.1:{silent_port}", anonymous=True)
    retry = replace(time.retry(150), connect=0.2)
    store = GcsStore("bucket", service=service, retry=retry)

    with pytest.raises(StoreUnavailableError, match=r"no connection to 127\.0\.0\.1 within"):
        store.limited(OutageLimit(5, clock=lambda: time.now)).stat("o")


SUBMIT = """
import kinetic

@kinetic.run(accelerator="cpu")
def one():
    return 1

if __name__ == "__main__":
    one()
"""


def test_a_command_reports_an_unreachable_bucket_within_the_time_that_is_set(
    gcs: GcsServer, silent_port: int, warm: Callable[[Path], Path], tmp_path: Path
) -> None:
    (tmp_path / "main.py").write_text(SUBMIT)
    kept = {k: v for k, v in os.environ.items() if not k.startswith("KINETIC_")}  # noqa: TID251
    home = str(warm(tmp_path / "home"))
    submit, jobs = ["main.py"], ["-m", "kinetic_cli", "jobs"]
    silent = f"http://127.0.0.1:{silent_port}"
    gcs.faults.add(status=503)
    with socket.socket() as refusing, GcsServer() as hanging, ExitStack() as stack:
        refusing.bind(("127.0.0.1", 0))
        hanging.create_bucket("bucket")
        hanging.faults.add(held=True)
        cases = {  # What is reached may hold something of the job.
            "503": (submit, gcs.endpoint, True),
            "hangs": (submit, hanging.endpoint, True),
            "refused": (submit, f"http://127.0.0.1:{refusing.getsockname()[1]}", False),
            "no such name": (submit, "http://nowhere.invalid", False),
            "silent": (submit, silent, False),
            "list": ([*jobs, "list"], silent, False),
            "status": ([*jobs, "status", "cpu-f-20260101-000000-0123456"], silent, False),
        }
        running = {}  # At once, since all that they do is to wait.
        for case, (command, endpoint, _) in cases.items():
            environment = {
                "KINETIC_HOME": home,
                "KINETIC_BACKEND": "local",
                "KINETIC_STORE": "gs://bucket/team",
                "KINETIC_STORE_TIMEOUT": "6",
                "STORAGE_EMULATOR_HOST": endpoint,
            }
            process = subprocess.Popen(
                [sys.executable, *command], cwd=tmp_path, env={**kept, **environment},
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            )  # fmt: skip
            running[case] = stack.enter_context(process)
            stack.callback(process.kill)
        for case, process in running.items():
            stderr = process.communicate(timeout=90)[1]  # Without the limit it takes more.
            assert process.returncode == 1, case
            assert re.search(r"gs://bucket (has not responded for|is unavailable)", stderr), stderr
            assert re.search(
                f"for up to {'10' if case in ('list', 'status') else '[3-6]'} s", stderr
            )
            assert "Could not" in stderr, case
            assert "even after retries" in stderr, case
            assert ("may be left behind" in stderr) == cases[case][2], case
