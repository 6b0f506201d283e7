"""A folder to upload, and its way back out of a store."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kinetic_payload.data.download import download_data
from kinetic_payload.data.references import DataRef
from kinetic_payload.stores.store import Store


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Return a folder with small files, a file of 1500 bytes, an executable, empty folders and a link."""
    folder = tmp_path / "dataset"
    (folder / "sub").mkdir(parents=True)
    (folder / "empty" / "deep").mkdir(parents=True)
    (folder / "empty").chmod(0o750)
    for number in range(30):
        (folder / f"{number:02d}.txt").write_bytes(b"%d" % number * 100)
    (folder / "sub" / "large ü").write_bytes(os.urandom(1500))
    (folder / "sub" / "large ü").chmod(0o755)
    (folder / "sub" / "run.sh").write_text("b")
    (folder / "sub" / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("sub")
    return folder


@pytest.fixture
def bring() -> Callable[[Store, Path, str | None, Path], Path]:
    """Return what downloads the data that was uploaded from a path, by its digest, to another path."""

    def download(store: Store, path: Path, digest: str | None, dest: Path) -> Path:
        ref = DataRef(
            key="d0", kind="local", source=str(path), is_dir=path.is_dir(), name=path.name, digest=digest
        )  # fmt: skip
        return download_data(store, ref, dest)

    return download
