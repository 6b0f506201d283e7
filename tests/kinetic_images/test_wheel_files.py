from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from eager import eager
from file_server import FileServer
from locked_project import package
from wheel_maker import locked, make_wheel

from kinetic_images.downloads import Downloader
from kinetic_images.errors import DownloadError
from kinetic_images.lock.packages import LockedPackage
from kinetic_images.wheel_files import WheelFiles
from kinetic_payload.http.retry import RetryPolicy
from kinetic_payload.threads import parallel_map

DATA = os.urandom(300_000)
EAGER = eager()
ANOTHER_PROCESS = """
import sys
from pathlib import Path
from kinetic_images.lock.packages import LockedPackage
from kinetic_images.wheel_files import WheelFiles
folder, sha256, address = sys.argv[1:]
package = LockedPackage(name="p", version="1", file="p-1-py3-none-any.whl", sha256=sha256, address=address)
print(WheelFiles(Path(folder)).get(package))
"""


class InterruptedTestError(Exception):
    pass


def interrupt(_: float) -> None:
    raise InterruptedTestError


def a_package(index: FileServer, data: bytes = DATA, size: int | None = None) -> LockedPackage:
    digest = hashlib.sha256(data).hexdigest()
    return package("p", "1", sha256=digest, address=index.add("/p.whl", data), size=size)


def files_in(folder: Path, policy: RetryPolicy = EAGER) -> WheelFiles:
    return WheelFiles(folder, Downloader(environ={}, policy=policy))


def leftovers(folder: Path) -> list[Path]:
    return list((folder / "partial").iterdir())


def test_a_wheel_is_downloaded_once_and_kept_by_its_digest(
    index: FileServer, tmp_path: Path
) -> None:
    package = a_package(index)
    counted: list[int] = []

    paths = {files_in(tmp_path).get(package, counted.append) for _ in range(2)}

    assert paths == {tmp_path / package.sha256 / package.file}
    assert next(iter(paths)).read_bytes() == DATA
    assert sum(counted) == len(DATA)
    assert index.count("/p.whl") == 1
    assert leftovers(tmp_path) == []
    assert {path.stat().st_mode & 0o077 for path in tmp_path.rglob("*")} == {0}


def test_an_interrupted_download_is_resumed_by_the_next_process(
    index: FileServer, tmp_path: Path
) -> None:
    package = a_package(index)
    index.cut = [200_000]
    with pytest.raises(InterruptedTestError):
        files_in(tmp_path, RetryPolicy(pause=interrupt)).get(package)

    path = files_in(tmp_path).get(package)

    assert path.read_bytes() == DATA
    assert index.requests[-1][2]["range"] == "bytes=200000-"

    path.unlink()
    (tmp_path / "partial" / package.sha256).write_bytes(b"x" * 1000)  # A damaged beginning.
    assert files_in(tmp_path).get(package).read_bytes() == DATA


@pytest.mark.parametrize("size", [None, len(DATA)])
@pytest.mark.parametrize("served", [DATA[:-1] + b"!", DATA + b"more", DATA[:-5]])
def test_another_file_than_the_locked_one_is_refused(
    index: FileServer, tmp_path: Path, served: bytes, size: int | None
) -> None:
    package = a_package(index, size=size)
    index.files["/p.whl"] = served

    with pytest.raises(
        DownloadError, match=r"p 1 at 127\.0\.0\.1:\d+ is not the one that was locked"
    ):
        files_in(tmp_path).get(package)

    index.files["/p.whl"] = DATA
    assert files_in(tmp_path).get(package).read_bytes() == DATA


def test_a_wheel_of_unknown_size_is_refused_beyond_the_largest_size(
    index: FileServer, tmp_path: Path
) -> None:
    files = WheelFiles(tmp_path, Downloader(environ={}), largest=1000)

    with pytest.raises(DownloadError, match="more than 1000 bytes arrived"):
        files.get(a_package(index))

    assert not any(path.stat().st_size for path in leftovers(tmp_path))


def test_threads_and_processes_that_want_one_wheel_download_it_once(
    index: FileServer, tmp_path: Path
) -> None:
    package = a_package(index)
    first = threading.Event()
    go_on = threading.Event()

    def hold() -> None:
        first.set()
        go_on.wait(30)

    index.on_request = hold
    command = [sys.executable, "-c", ANOTHER_PROCESS, tmp_path, package.sha256, package.address]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as other:
        assert first.wait(30)
        threading.Timer(0.3, go_on.set).start()
        files = files_in(tmp_path)
        paths = set(parallel_map(lambda _: files.get(package), range(4), threads=4))
        assert other.communicate()[0].decode().strip() == str(paths.pop())

    assert paths == set()
    assert index.count("/p.whl") == 1


def test_a_local_wheel_is_used_in_place_unless_it_changed(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path / "with space")
    package = locked(wheel)
    files = files_in(tmp_path / "cache")

    assert files.get(package) == wheel
    assert files.size(replace(package, size=None)) == wheel.stat().st_size
    assert not (tmp_path / "cache").exists()
    wheel.write_bytes(b"changed")
    with pytest.raises(DownloadError, match="the file was changed"):
        files.get(package)
    wheel.unlink()
    with pytest.raises(DownloadError, match="No such file"):
        files.get(package)


def test_the_size_is_that_of_the_lock_the_cache_or_the_server(
    index: FileServer, tmp_path: Path
) -> None:
    package, files = a_package(index), files_in(tmp_path)

    assert files.size(replace(package, size=7)) == 7
    assert index.requests == []
    assert files.size(package) == len(DATA)
    files.get(package)
    del index.files["/p.whl"]
    assert files.size(package) == len(DATA)


@pytest.mark.parametrize("change", [{"sha256": "../x"}, {"file": "../x.whl"}, {"file": "a/b.whl"}])
def test_a_lock_cannot_name_a_path_outside_of_the_cache(
    index: FileServer, tmp_path: Path, change: dict[str, str]
) -> None:
    with pytest.raises(DownloadError, match="lock of p 1 is damaged"):
        files_in(tmp_path / "cache").get(replace(a_package(index), **change))  # type: ignore[arg-type]

    assert not (tmp_path / "cache").exists()
