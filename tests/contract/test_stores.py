from pathlib import Path

from kinetic_payload.store import Store
from kinetic_payload.stores.folder import FolderStore
from kinetic_payload.testing import MemoryStore, StoreContract


class TestFolderStore(StoreContract):
    def make_store(self, folder: Path) -> Store:
        return FolderStore(folder / "the store")


class TestMemoryStore(StoreContract):
    def make_store(self, folder: Path) -> Store:
        return MemoryStore()
