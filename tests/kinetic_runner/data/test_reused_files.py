"""What is reused of an earlier attempt; with whole attempts in `test_pipeline`."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kinetic_payload.data.references import DataRef
from kinetic_payload.data.upload import ensure_data
from kinetic_payload.testing import MemoryStore
from kinetic_runner.data.reused_files import EarlierFiles


def a_ref(source: Path, *, is_dir: bool) -> DataRef:
    digest = ensure_data(MemoryStore(), source)
    return DataRef(
        key="d0", kind="local", source="one.csv", is_dir=is_dir, name="one.csv", digest=digest
    )


@pytest.fixture
def left(tmp_path: Path) -> EarlierFiles:
    (tmp_path / "payload").write_bytes(b"call")
    (tmp_path / "data" / "d0").mkdir(parents=True)
    (tmp_path / "data" / "d0" / "one.csv").write_text("1,2")
    earlier = EarlierFiles(tmp_path)
    earlier.put_aside()
    return earlier


@pytest.mark.parametrize(("content", "reused"), [(b"call", True), (b"other", False)])
def test_a_file_is_reused_if_it_has_its_digest(
    left: EarlierFiles, tmp_path: Path, content: bytes, reused: bool
) -> None:
    path = tmp_path / "payload"

    assert left.take_file(path, digest=hashlib.sha256(content).hexdigest()) is reused
    assert path.exists() is reused
    assert left.take_file(tmp_path / "never there") is False


@pytest.mark.parametrize(
    ("change", "reused"),
    [
        (lambda data: None, True),
        (lambda data: (data / "one.csv").write_text("spoiled"), False),
        (lambda data: (data / "one.csv").chmod(0o600), False),
        (lambda data: (data / "more").mkdir(), False),
        (lambda data: os.mkfifo(data / "pipe"), False),
        (lambda data: (data.rename(f"{data}-away"), data.symlink_to(f"{data}-away")), False),
    ],
    ids=["nothing", "content", "mode", "more", "pipe", "link"],
)
def test_data_is_reused_if_nothing_of_it_was_changed(
    left: EarlierFiles, tmp_path: Path, change: Callable[[Path], object], reused: bool
) -> None:
    source = tmp_path / "source"
    (source / "folder").mkdir(parents=True)
    (source / "link").symlink_to("one.csv")
    (source / "one.csv").write_text("1,2")
    (source / "one.csv").chmod(0o644)
    ref = a_ref(source, is_dir=True)
    path = tmp_path / "data" / "d0"
    shutil.copytree(source, path)
    left.put_aside()

    change(tmp_path / ".earlier" / "data" / "d0")

    assert left.take_data(ref, tmp_path / "d0", was_at=path) is reused
    assert (tmp_path / "d0").exists() is reused


def test_a_file_of_data_is_reused_once_from_where_it_was_mounted(
    left: EarlierFiles, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "one.csv").write_text("1,2")
    ref = a_ref(source, is_dir=False)
    mounted = tmp_path / "data" / "d0" / "one.csv"

    assert left.take_data(ref, tmp_path / "one.csv", was_at=mounted)
    assert (tmp_path / "one.csv").read_text() == "1,2"
    assert not left.take_data(ref, tmp_path / "again", was_at=mounted)
    assert not left.take_data(ref, tmp_path / "again", was_at=Path("/elsewhere/one.csv"))


def test_only_the_last_attempts_files_are_kept(left: EarlierFiles, tmp_path: Path) -> None:
    (tmp_path / "new").touch()
    left.put_aside()

    assert not left.take_file(tmp_path / "payload")
    assert left.take_file(tmp_path / "new")
    left.remove()
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may move and remove everything")
def test_folders_that_the_function_closed_are_moved_and_removed(tmp_path: Path) -> None:
    (tmp_path / "project" / "closed" / "inner").mkdir(parents=True)
    for folder in ("project/closed/inner", "project/closed", "project"):
        (tmp_path / folder).chmod(0)
    earlier = EarlierFiles(tmp_path)

    earlier.put_aside()
    earlier.remove()

    assert list(tmp_path.iterdir()) == []


_THREE_ATTEMPTS = """
import subprocess, sys
from pathlib import Path
from kinetic_runner.data.reused_files import EarlierFiles
root = Path(sys.argv[1])
for _ in range(3):
    earlier = EarlierFiles(root)
    earlier.put_aside()
    busy = root / "project" / "busy"
    busy.mkdir(parents=True)
    subprocess.run(["mount", "--bind", busy, busy], check=True)
    (root / "payload").touch()
    earlier.remove()
"""


def test_files_that_cannot_be_removed_do_not_disturb_later_attempts(tmp_path: Path) -> None:
    enter = ["unshare", "--map-root-user", "--mount"]
    if sys.platform != "linux" or subprocess.run([*enter, "true"], capture_output=True).returncode:
        pytest.skip("no mounts for users here")

    subprocess.run([*enter, sys.executable, "-c", _THREE_ATTEMPTS, tmp_path], check=True)

    again = EarlierFiles(tmp_path)
    again.put_aside()
    assert again.take_file(tmp_path / "payload")
