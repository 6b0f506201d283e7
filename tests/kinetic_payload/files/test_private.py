from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from kinetic_payload.files.private import (
    flush_to_disk,
    make_folder,
    make_new_folder,
    read_private,
    write_private,
)

MAKE = """
import os, sys
from kinetic_payload.files.private import *
home = sys.argv[1]
make_folder(f"{home}/a/b")
make_new_folder(f"{home}/new")
make_fifo(f"{home}/fifo")
write_private(f"{home}/a/b/whole", b"data", durable=True)
with open(f"{home}/a/log", "ab", opener=open_private) as log:
    log.write(b"line")
os.close(open_private(f"{home}/a/lock", os.O_RDWR | os.O_CREAT))
"""


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o777])
def test_new_files_and_folders_are_private_under_any_umask(tmp_path: Path, umask: int) -> None:
    subprocess.run([sys.executable, "-c", MAKE, str(tmp_path / "home")], check=True, umask=umask)

    made = [tmp_path / "home", *(tmp_path / "home").rglob("*")]
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in made}
    assert modes == {
        **dict.fromkeys(("home", "a", "b", "new"), 0o700),
        **dict.fromkeys(("fifo", "whole", "log", "lock"), 0o600),
    }


def test_an_existing_folder_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o755)
    (tmp_path / "file").touch()

    make_folder(tmp_path / "shared")

    assert stat.S_IMODE((tmp_path / "shared").stat().st_mode) == 0o755
    with pytest.raises(FileExistsError):
        make_new_folder(tmp_path / "shared")
    with pytest.raises(FileExistsError):
        make_folder(tmp_path / "file")


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="there is no /proc")
def test_a_folder_that_cannot_be_made_raises_the_systems_error() -> None:
    with pytest.raises(FileNotFoundError, match="/proc/"):
        make_folder("/proc/no-such/folder")


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "in it").touch()

    with pytest.raises(OSError, match="directory"):
        write_private(tmp_path / "folder", b"data")

    assert os.listdir(tmp_path) == ["folder"]


def test_a_file_that_others_may_write_is_not_read(tmp_path: Path) -> None:
    mine, shared, fifo = tmp_path / "mine", tmp_path / "shared", tmp_path / "fifo"
    write_private(mine, b"mine")
    write_private(shared, b"shared")
    shared.chmod(0o620)
    os.mkfifo(fifo)

    assert read_private(mine) == b"mine"
    for path in (shared, fifo):
        with pytest.raises(PermissionError, match=path.name):
            read_private(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_file_of_another_user_is_not_read(tmp_path: Path) -> None:
    write_private(tmp_path / "theirs", b"theirs")
    os.chown(tmp_path / "theirs", 65534, 65534)

    with pytest.raises(PermissionError):
        read_private(tmp_path / "theirs")


@pytest.mark.parametrize("supported", [True, False])
def test_on_macos_a_barrier_orders_what_reaches_the_disk(tmp_path: Path, supported: bool) -> None:
    asked: list[int] = []

    def control(_: int, command: int) -> None:
        asked.append(command)
        if not supported:
            raise OSError(45, "Operation not supported")

    with (tmp_path / "file").open("wb") as stream:
        flush_to_disk(stream.fileno(), platform="darwin", control=control)
        flush_to_disk(stream.fileno(), platform="linux", control=control)

    assert asked == [85]
