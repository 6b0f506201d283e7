from pathlib import Path

import pytest

from kinetic_payload.digests import FileCheck, TreeEntry, file_digest
from kinetic_payload.errors import IntegrityError
from kinetic_payload.stores.folder.store import FolderStore
from kinetic_payload.stores.store import Store
from kinetic_payload.testing import MemoryStore, StoreContract


class TestFolderStore(StoreContract):
    def make_store(self, folder: Path) -> Store:
        return FolderStore(folder / "the store")


class TestMemoryStore(StoreContract):
    def make_store(self, folder: Path) -> Store:
        return MemoryStore()


@pytest.mark.parametrize("contract", [TestFolderStore(), TestMemoryStore()])
def test_a_file_with_other_bytes_than_expected_is_not_stored(
    tmp_path: Path, contract: StoreContract
) -> None:
    store, source = contract.make_store(tmp_path / "store"), tmp_path / "source"
    source.write_bytes(b"good")
    entry = TreeEntry("file", "file", digest=file_digest(source, "file"))
    store.upload("o", source, check=FileCheck(entry, EOFError()))
    source.write_bytes(b"evil")

    with pytest.raises(EOFError):
        store.upload("o", source, check=FileCheck(entry, EOFError()))
    assert store.read("o") == b"good"


@pytest.mark.parametrize("contract", [TestFolderStore(), TestMemoryStore()])
def test_what_is_larger_than_expected_is_not_downloaded(
    tmp_path: Path, contract: StoreContract
) -> None:
    store, target = contract.make_store(tmp_path / "store"), tmp_path / "target"
    store.write("o", b"x" * 1000)

    with pytest.raises(IntegrityError):
        store.download("o", target, most=999)
    assert list(tmp_path.glob("*target*")) == []
    store.download("o", target, most=1000)
    assert target.read_bytes() == b"x" * 1000
