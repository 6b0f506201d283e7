"""`Data` to and from a bucket, over the real client and the wire."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kinetic_payload.data.download import download_data
from kinetic_payload.data.marker import Sizes
from kinetic_payload.data.references import DataRef
from kinetic_payload.data.upload import ensure_data
from kinetic_payload.errors import DataError
from kinetic_payload.layout import data_marker
from kinetic_payload.project.snapshot import tree_of
from kinetic_payload.stores.gcs import GcsStore, Service
from kinetic_servers.gcs import GcsServer

MIB = 1 << 20

UPLOAD = """
import sys
from pathlib import Path
from kinetic_payload.data.marker import Sizes
from kinetic_payload.data.upload import ensure_data
from kinetic_payload.stores.store import parse_location
from kinetic_payload.stores import open_store

source, large, pack = sys.argv[1:]
store = open_store(parse_location("gs://bucket"))
print("ready", flush=True)
sys.stdin.readline()
print(ensure_data(store, Path(source), sizes=Sizes(large=int(large), pack=int(pack))), flush=True)
"""


@contextmanager
def uploading(gcs: GcsServer, source: Path, sizes: Sizes) -> Iterator[subprocess.Popen[str]]:
    """Run a process that uploads *source* once `go` is called."""
    process = subprocess.Popen(
        [sys.executable, "-c", UPLOAD, str(source), str(sizes.large), str(sizes.pack)],
        env=os.environ | gcs.environment,  # noqa: TID251 - a child's begins with ours
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def ref_to(path: Path, digest: str) -> DataRef:
    is_dir = path.is_dir()
    return DataRef(
        key="d0", kind="local", source=str(path), is_dir=is_dir, name=path.name, digest=digest
    )


def many_files(folder: Path, count: int, size: int = 4000) -> Path:
    noise = os.urandom(size + count)
    for number in range(count):
        if number % 100 == 0:
            (folder / f"{number // 100:03d}").mkdir(parents=True)
        (folder / f"{number // 100:03d}" / f"{number:05d}.bin").write_bytes(
            noise[number : number + size]
        )
    return folder


def asked(gcs: GcsServer) -> Counter[str]:
    return Counter(one.operation for one in gcs.requests)


def test_thousands_of_small_files_cost_a_handful_of_requests(
    gcs: GcsServer, store: GcsStore, tmp_path: Path
) -> None:
    folder = many_files(tmp_path / "files", 2000)
    digest = ensure_data(store, folder)
    names = gcs.names("bucket")
    assert names == [f"data-markers/{digest}", f"data/{digest}/packs/00000.zip"]
    assert len(gcs.requests) <= 6, asked(gcs)

    gcs.requests.clear()
    ensure_data(store, folder)
    assert asked(gcs) == {"objects.get.media": 1, "objects.list": 1}

    gcs.requests.clear()
    arrived = download_data(store, ref_to(folder, digest), tmp_path / "out")
    assert tree_of(arrived).digest == digest
    assert len(gcs.requests) <= 4, asked(gcs)


def test_a_killed_upload_of_data_sends_no_complete_object_again(
    gcs: GcsServer, store: GcsStore, tmp_path: Path
) -> None:
    folder = many_files(tmp_path / "files", 200)
    (folder / "large").write_bytes(os.urandom(24 * MIB))
    sizes = Sizes(large=16 * MIB, pack=200_000)
    # The last pack and the end of the large file never arrive.
    gcs.faults.add(operation="objects.insert*", name="*/packs/00003.zip", held=True)
    gcs.faults.add(method="PUT", after=1, held=True)
    with uploading(gcs, folder, sizes) as process:
        go(process)
        deadline = time.monotonic() + 60
        while sum("/packs/" in name for name in gcs.names("bucket")) < 4 or not (
            gcs.requests.matching(method="PUT", status=308)
        ):
            assert time.monotonic() < deadline, asked(gcs)
            time.sleep(0.05)  # noqa: TID251 - until another process is in the middle
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    gcs.faults.clear()
    digest = tree_of(folder).digest
    before = {one.name: one.generation for one in gcs.objects("bucket")}
    assert before
    assert data_marker(digest) not in before
    sent = gcs.requests.bytes_in
    assert sent > 16 * MIB

    gcs.requests.clear()
    with uploading(gcs, folder, sizes) as process:
        go(process)
        output, _ = process.communicate()
    assert output == f"{digest}\n"
    after = {one.name: one.generation for one in gcs.objects("bucket")}
    assert {name: after[name] for name in before} == before, "what was there was not sent again"
    assert data_marker(digest) in after
    arrived = download_data(store, ref_to(folder, digest), tmp_path / "out")
    assert tree_of(arrived).digest == digest


def test_a_store_below_a_prefix_leaves_less_room_for_paths(gcs: GcsServer, tmp_path: Path) -> None:
    service = Service(gcs.endpoint, anonymous=True)
    folder = tmp_path / "files"
    deep = folder.joinpath(*["d" * 200] * 4)
    deep.mkdir(parents=True)
    (deep / "file").write_text("x")
    ensure_data(GcsStore("bucket", service=service), folder, mounted=True)
    gcs.requests.clear()
    with pytest.raises(DataError, match="the limit is 1024"):
        ensure_data(GcsStore("bucket/" + "p" * 200, service=service), folder, mounted=True)
    assert len(gcs.requests) == 0
