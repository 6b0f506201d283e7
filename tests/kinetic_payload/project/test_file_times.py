from __future__ import annotations

import mmap
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kinetic_payload.project.file_times import FileTimes, linux_type
from kinetic_payload.project.hashing import hash_file
from kinetic_payload.project.snapshot import tree_of
from kinetic_payload.project.stat_cache import StatCache, stamp_of

linux = pytest.mark.skipif(sys.platform != "linux", reason="maps cannot be seen elsewhere")


def wait_until_old(path: Path) -> None:
    """Times of change cannot be set, only waited for."""
    while time.time_ns() < path.stat().st_ctime_ns + 200_000_000:
        time.sleep(0.02)  # noqa: TID251


@contextmanager
def mapped_here(path: Path) -> Iterator[Callable[[bytes], None]]:
    with path.open("r+b") as stream, mmap.mmap(stream.fileno(), 0) as memory:

        def write(data: bytes) -> None:
            memory[: len(data)] = data

        yield write


_CHILD = """
import mmap, sys
with open(sys.argv[1], "r+b") as stream, mmap.mmap(stream.fileno(), 0) as memory:
    for line in sys.stdin.buffer:
        memory[:len(line) - 1] = line[:-1]
        print("written", flush=True)
"""


@contextmanager
def mapped_in_another_process(path: Path) -> Iterator[Callable[[bytes], None]]:
    command = [sys.executable, "-c", _CHILD, str(path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as child:
        assert child.stdin is not None
        assert child.stdout is not None

        def write(data: bytes) -> None:
            child.stdin.write(data + b"\n")
            child.stdin.flush()
            assert child.stdout.readline() == b"written\n"

        yield write
        child.stdin.close()


@linux
@pytest.mark.parametrize("mapped", [mapped_here, mapped_in_another_process])
@pytest.mark.parametrize("folder", ["tmp_path", "/dev/shm"])
def test_writes_through_a_memory_map_are_noticed(
    tmp_path: Path, mapped, folder: str, request: pytest.FixtureRequest
) -> None:
    data = tmp_path / "data"
    if folder != "tmp_path":
        data = Path(folder, f"kinetic-{os.getpid()}-{tmp_path.name}")
        request.addfinalizer(lambda: [os.unlink(data / "array"), data.rmdir()])
    data.mkdir()
    (data / "array").write_bytes(bytes(100))
    seen = []
    with mapped(data / "array") as write:
        for content in (b"one", b"two", b"six"):
            write(content)
            if content == b"one":
                wait_until_old(data / "array")
            # In between, the page stays dirty: no write through the map changes times by itself.
            seen.append(tree_of(data, StatCache(tmp_path / "cache")).digest)

    assert len(set(seen)) == 3


@linux
def test_a_mapped_file_is_cached(tmp_path: Path) -> None:
    file = tmp_path / "array"
    file.write_bytes(bytes(100))
    with mapped_here(file) as write:
        write(b"one")
        wait_until_old(file)
        hashed = hash_file(file, "array", times=FileTimes(lambda *_: "ext4"))

    assert hashed.lasting


@linux
def test_a_file_that_was_mapped_while_others_were_read_is_not_cached(tmp_path: Path) -> None:
    file = tmp_path / "array"
    file.write_bytes(bytes(100))
    wait_until_old(file)
    times = FileTimes(lambda *_: "ext4")
    with mapped_here(file) as write:
        for _ in range(20):
            write(b"one")
            wait_until_old(file)  # It took so long to read the others.
            hashed = hash_file(file, "array", times=times)
            stamp = stamp_of(file.stat())
            write(b"two")
            assert not hashed.lasting
            if stamp_of(file.stat()) == stamp:
                return
    # A write changes the time only if the system wrote the page to the disk since the last one.
    pytest.fail("each write changed the file's time")


def test_nothing_is_cached_where_times_are_not_reliable(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_text("one")
    wait_until_old(file)

    lasting = {
        kind: hash_file(file, "f", times=FileTimes(lambda *_, kind=kind: kind)).lasting
        for kind in ("ext4", "tmpfs", "nfs4", "fuse.sshfs", "9p", "vfat", "zfs", None)
    }

    assert lasting == dict.fromkeys(lasting, False) | {"ext4": True}


_MOUNTS = rb"""
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw,discard
30 27 0:40 /@home /home rw - btrfs /dev/vdb rw,subvolid=257,subvol=/@home
31 30 0:41 / /home/my\040share rw - fuse.sshfs host:/ rw
32 27 0:42 / /tmp rw - tmpfs tmpfs rw
33 32 0:43 / /tmp/live rw - overlay none rw,lowerdir=/l,upperdir=/tmp/upper,workdir=/tmp/work
34 27 0:44 / /box rw - overlay none rw,lowerdir=/l,upperdir=/var/upper,workdir=/var/work
35 27 0:45 / /signed ro - overlay none ro,lowerdir=/l
36 27 0:46 / /hidden rw - nfs4 host:/ rw
37 36 254:1 /there /hidden rw - ext4 /dev/vda1 rw
""".strip()
_INNER = rb"40 1 0:50 / / rw - overlay none rw,lowerdir=/l,upperdir=/var/lib/box/upper,workdir=/w"


@pytest.mark.parametrize(
    ("path", "device", "kind"),
    [
        ("/etc/f", (254, 1), "ext4"),
        ("/home/f", (0, 99), "btrfs"),
        ("/home/my share/f", (0, 99), "fuse.sshfs"),
        ("/home/my share/f", (0, 41), "fuse.sshfs"),
        ("/homeless", (0, 99), "ext4"),
        ("/tmp/f", (0, 42), "tmpfs"),
        ("/tmp/live/f", (0, 43), "tmpfs"),
        ("/box/f", (0, 99), "ext4"),
        ("/signed/f", (0, 45), "ext4"),
        ("/hidden/f", (0, 99), "ext4"),
    ],
)
def test_the_type_of_a_file_system_is_found(path: str, device: tuple[int, int], kind: str) -> None:
    assert linux_type(path, os.makedev(*device), _MOUNTS) == kind
    # The upper layer of this overlay is not visible: it counts as a disk.
    assert linux_type(path, os.makedev(0, 99), _INNER) == "ext4"


@linux
def test_the_type_of_this_file_system_is_that_of_stat(tmp_path: Path) -> None:
    command = ["stat", "-f", "-c", "%T", str(tmp_path)]
    kind = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    if kind == "overlayfs":
        pytest.skip("an overlay counts as what is below it")
    mounts = Path("/proc/self/mountinfo").read_bytes()

    found = linux_type(os.path.realpath(tmp_path), tmp_path.stat().st_dev, mounts)

    assert found in {"ext2/ext3": {"ext2", "ext3", "ext4"}}.get(kind, {kind})
