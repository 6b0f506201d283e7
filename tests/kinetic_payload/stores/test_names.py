from __future__ import annotations

from pathlib import Path

import pytest

from kinetic_payload.stores.folder.store import FolderStore


@pytest.mark.parametrize(
    "path", [".kinetic-STORE/x", "line\nbreak", "a/line\rbreak", "/".join(["d" * 150] * 7)]
)
def test_files_that_no_object_can_be_are_not_listed(tmp_path: Path, path: str) -> None:
    store = FolderStore(tmp_path)
    store.write("object", b"")
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).touch()

    assert [info.name for info in store.list()] == ["object"]
    assert list(store.folders()) == []
    assert [*store.list("a\0b/"), *store.records("a\nb/")] == []
