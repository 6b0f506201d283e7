"""Large objects on their way to and from a bucket: interrupted, replaced, damaged; memory."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kinetic_images.uv import find_uv
from kinetic_payload.digests import FileCheck, TreeEntry, file_digest
from kinetic_payload.errors import (
    IntegrityError,
    ObjectNotFoundError,
)
from kinetic_payload.stores.gcs import GcsStore
from kinetic_payload.stores.store import ABSENT
from kinetic_servers.gcs import GcsServer

from .conftest import QUICK, open_it

MIB = 1 << 20
BLOCK = os.urandom(MIB)
LARGE = b"".join(BLOCK[:-1] + bytes([number]) for number in range(24))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(LARGE)
    os.utime(path, (1, 1))  # Long ago, so that no change falls into the same tick.
    return path


def sent(gcs: GcsServer) -> int:
    """Return how many bytes of objects arrived."""
    return sum(one.bytes_in for one in gcs.requests if one.operation.startswith("objects.insert"))


def test_an_upload_resumes_after_its_connection_broke(
    gcs: GcsServer, store: GcsStore, source: Path
) -> None:
    for at in (12 * MIB, 3 * MIB):
        gcs.faults.add(operation="objects.insert.chunk", times=1, reset="request", at=at)

    store.upload("o", source)

    assert gcs.read("bucket", "o") == LARGE
    assert sent(gcs) < len(LARGE) + MIB


@pytest.mark.parametrize("status", [404, 410])
def test_an_upload_whose_session_expired_begins_anew(
    gcs: GcsServer, source: Path, status: int
) -> None:
    gcs.faults.add(operation="objects.insert.chunk", times=1, reset="request", at=15 * MIB)
    store = open_it(gcs, replace(QUICK, pause=lambda _: gcs.expire_uploads(status=status)))
    moved: list[int] = []

    store.upload("o", source, if_generation=ABSENT, progress=moved.append)

    assert gcs.read("bucket", "o") == LARGE
    assert gcs.requests.count(operation="objects.insert.start") == 2
    assert sum(moved) == len(LARGE)


def test_an_upload_whose_last_response_was_lost_is_not_sent_again(
    gcs: GcsServer, store: GcsStore, source: Path
) -> None:
    gcs.faults.add(operation="objects.insert.chunk", after=1, times=1, reset="after")

    written = store.upload("o", source, if_generation=ABSENT)

    assert written.generation == gcs.objects("bucket")[0].generation
    assert sent(gcs) < len(LARGE) + MIB


def change(source: Path) -> None:
    """Change bytes, but not the times."""
    with source.open("r+b") as stream:
        stream.seek(20 * MIB)
        stream.write(b"changed")
    os.utime(source, (1, 1))


@pytest.mark.parametrize("meanwhile", [change, lambda source: os.truncate(source, 100)])
def test_a_file_that_changes_while_it_is_uploaded_is_not_stored(
    gcs: GcsServer, store: GcsStore, source: Path, meanwhile: Callable[[Path], object]
) -> None:
    digest = file_digest(source, "source")
    entry = TreeEntry("source", "file", size=len(LARGE), digest=digest)
    check = FileCheck(entry, EOFError())

    with pytest.raises(EOFError):
        store.upload("o", source, progress=lambda _: meanwhile(source), check=check)
    assert gcs.names("bucket") == []

    source.write_bytes(LARGE)
    gcs.faults.add(operation="objects.insert.chunk", times=1, reset="request", at=12 * MIB)
    store.upload("o", source, check=FileCheck(entry, EOFError()))
    assert gcs.read("bucket", "o") == LARGE


def test_a_download_resumes_after_its_connection_broke(
    gcs: GcsServer, store: GcsStore, tmp_path: Path
) -> None:
    store.write("o", LARGE)
    gcs.requests.clear()
    for _ in range(4):
        gcs.faults.add(
            operation="objects.get.media", times=1, reset="response", polite=True, at=7 * MIB
        )

    store.download("o", tmp_path / "target")

    assert (tmp_path / "target").read_bytes() == LARGE
    starts = [one.headers["range"].split("-")[0] for one in gcs.requests]
    assert len(set(starts)) == len(starts) > 2 + 2


DOWNLOAD = """
import sys
from pathlib import Path
from kinetic_payload.threads import parallel_map
from kinetic_payload.stores.gcs import GcsStore, Service

endpoint, folder = sys.argv[1:]
store = GcsStore("bucket", service=Service(endpoint, anonymous=True))
parallel_map(lambda number: store.download("o", Path(folder, str(number))), range(4), threads=4, grace=100)
"""


def test_downloads_that_are_interrupted_end_at_once_and_leave_nothing(
    gcs: GcsServer, store: GcsStore, tmp_path: Path
) -> None:
    store.write("o", LARGE)
    # One part arrives, which is not the whole object.
    out = gcs.faults.add(operation="objects.get.media", after=1, status=503)
    command = [sys.executable, "-c", DOWNLOAD, gcs.endpoint, str(tmp_path)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as child:
        while out.hits < 8:
            assert child.poll() is None
            threading.Event().wait(0.01)
        child.send_signal(signal.SIGINT)

        # Retries would go on for minutes.
        assert child.wait(60) == -signal.SIGINT

    assert list(tmp_path.iterdir()) == []


def test_an_object_replaced_during_its_download_arrives_as_one_generation(
    gcs: GcsServer, store: GcsStore, tmp_path: Path
) -> None:
    store.write("o", LARGE)
    replaced = LARGE[::-1]
    moved: list[int] = []

    def replace_once(size: int) -> None:
        if not moved:
            store.write("o", replaced)
        moved.append(size)

    store.download("o", tmp_path / "target", progress=replace_once)

    assert (tmp_path / "target").read_bytes() == replaced


def test_an_object_replaced_before_its_download_resumes_arrives_as_one_generation(
    gcs: GcsServer, store: GcsStore, tmp_path: Path
) -> None:
    store.write("o", b"1" * MIB)
    gcs.faults.add(operation="objects.get.media", times=1, reset="response", polite=True)

    def meanwhile(_: float) -> None:
        store.write("o", b"2" * MIB)

    # A range has no checksum.
    read = open_it(gcs, replace(QUICK, pause=meanwhile)).read("o", start=1)

    assert read == b"2" * (MIB - 1)


def test_an_object_that_is_deleted_during_its_download_leaves_nothing(
    gcs: GcsServer, store: GcsStore, tmp_path: Path
) -> None:
    store.write("o", LARGE)

    with pytest.raises(ObjectNotFoundError):
        store.download("o", tmp_path / "target", progress=lambda _: store.delete("o") and None)

    assert [path.name for path in tmp_path.iterdir()] == []


@pytest.fixture
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GcsServer]:
    """A server whose disk changed a byte of `large`, but not its checksum."""
    folder = tmp_path_factory.mktemp("server")
    with GcsServer(folder=folder) as server:
        server.create_bucket("bucket")
        open_it(server).write("large", LARGE)
        (content,) = (path for path in folder.rglob("*") if path.is_file())
        with content.open("r+b") as stream:
            stream.seek(20 * MIB)
            [byte] = stream.read(1)
            stream.seek(20 * MIB)
            stream.write(bytes([byte ^ 1]))
        yield server


def test_damaged_bytes_are_an_error_in_every_kind_of_read(
    damaged: GcsServer, tmp_path: Path
) -> None:
    store = open_it(damaged)

    with pytest.raises(IntegrityError, match="'large' of gs://bucket"):
        store.download("large", tmp_path / "target")
    with pytest.raises(IntegrityError):
        store.read("large")
    with pytest.raises(IntegrityError), store.reader("large"):
        pass

    assert [path.name for path in tmp_path.iterdir()] == []


def test_a_forked_process_makes_its_own_connections(gcs: GcsServer, store: GcsStore) -> None:
    store.write("parent", b"")
    pid = os.fork()
    if pid == 0:
        try:
            store.write("child", b"")
        finally:
            os._exit(0)
    os.waitpid(pid, 0)

    assert [info.name for info in store.list()] == ["child", "parent"]
    connections = {one.name: one.connection for one in gcs.requests}
    assert connections["child"] != connections["parent"]


MEMORY = """
import resource, sys
from pathlib import Path
from kinetic_payload.stores.gcs import GcsStore, Service

endpoint, what, path = sys.argv[1:]
store = GcsStore("bucket", service=Service(endpoint, anonymous=True))
store.stat("nothing")  # With the client loaded and connected.
unit = 1 if sys.platform == "darwin" else 1024
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
if what == "up":
    store.upload("large", Path(path))
elif what == "down":
    store.download("large", Path(path))
else:
    with store.reader("large") as stream:
        while stream.read(1 << 20):
            pass
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit - before)
"""


def test_memory_does_not_grow_with_the_size_of_an_object(gcs: GcsServer, tmp_path: Path) -> None:
    source = tmp_path / "source"
    with source.open("wb") as stream:
        for _ in range(120):
            stream.write(BLOCK)

    for what, path in (("up", source), ("down", tmp_path / "target"), ("reader", source)):
        done = subprocess.run(
            [sys.executable, "-c", MEMORY, gcs.endpoint, what, str(path)],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert int(done.stdout) < 80 * MIB, what

    assert (tmp_path / "target").stat().st_size == source.stat().st_size


OLD = """
import sys
from kinetic_payload.stores import open_store
from kinetic_payload.stores.store import parse_location

import urllib3

store = open_store(parse_location("gs://jobs"))
data = bytes(range(256)) * 4096
store.write("name", data)
print(urllib3.__version__, store.read("name") == data)
"""


def test_the_store_works_with_urllib3_1_and_requests_2_31(tmp_path: Path) -> None:
    uv = find_uv().program
    command = [uv, "pip", "install", "-q", "--no-config", "--python", sys.executable]
    command += ["--target", str(tmp_path), "urllib3<2", "requests<2.32"]
    subprocess.run(command, check=True, cwd=tmp_path)
    with GcsServer() as server:
        server.create_bucket("jobs")
        environment = {"PYTHONPATH": str(tmp_path), **server.environment}
        ran = subprocess.run(
            [sys.executable, "-c", OLD], env=environment, check=True, capture_output=True, text=True
        )
    assert re.fullmatch(r"1\.26\.[0-9]+ True\n", ran.stdout)
