from pathlib import Path

from kinetic.backends import Backend
from kinetic.backends.local import LocalBackend
from kinetic.testing import BackendContract
from kinetic_payload.store import Store
from kinetic_payload.stores.folder import FolderStore


class TestLocalBackend(BackendContract):
    def make_backend(self, folder: Path) -> tuple[Backend, Store]:
        store = FolderStore(folder / "home" / "store")
        return LocalBackend(folder / "home", store), store
