"""The bucket store, against our strict server."""

from pathlib import Path

import pytest

from kinetic_payload.stores.gcs import GcsStore, RetryPolicy, Service
from kinetic_payload.stores.store import Store
from kinetic_payload.testing import StoreContract
from kinetic_payload.testing.gcs import GcsServer

QUICK = RetryPolicy(limit=100, first=0.01, longest=0.1)


class TestGcsStore(StoreContract):
    @pytest.fixture(autouse=True)
    def _server(self, gcs: GcsServer) -> None:
        self.service = Service(gcs.endpoint, anonymous=True)

    def make_store(self, folder: Path) -> Store:
        return GcsStore("bucket", service=self.service, retry=QUICK)


class TestGcsStoreBelowAPrefix(StoreContract):
    @pytest.fixture(autouse=True)
    def _server(self, gcs: GcsServer) -> None:
        self.service = Service(gcs.endpoint, anonymous=True)

    def make_store(self, folder: Path) -> Store:
        GcsStore("bucket", service=self.service).write("outside", b"")
        return GcsStore("bucket/a/prefix", service=self.service, retry=QUICK)
