"""The bucket store against a server that nobody here wrote, as far as that one goes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kinetic_payload.errors import StoreUnavailableError
from kinetic_payload.stores.gcs import GcsStore, RetryPolicy, Service
from kinetic_payload.stores.store import Store
from kinetic_payload.testing import StoreContract

# Patient, for a disk that is busy with something else can keep this server waiting for seconds.
PATIENT = RetryPolicy(limit=60, first=0.01, longest=0.1)


class TestGcsStoreOnASecondServer(StoreContract):
    @pytest.fixture(autouse=True)
    def _server(self, second_gcs: str) -> None:
        self.service = Service(second_gcs, anonymous=True)
        self.retry = PATIENT

    def make_store(self, folder: Path) -> Store:
        return GcsStore("bucket", service=self.service, retry=self.retry)

    @pytest.mark.xfail(reason="it ignores the precondition of a deletion", raises=AssertionError)
    def test_compare_and_swap_refuses_what_is_no_longer_so(self, tmp_path: Path) -> None:
        super().test_compare_and_swap_refuses_what_is_no_longer_so(tmp_path)

    @pytest.mark.xfail(reason="it ignores the precondition of a copy", raises=AssertionError)
    def test_a_renewed_object_is_young_and_unchanged(self, tmp_path: Path) -> None:
        super().test_a_renewed_object_is_young_and_unchanged(tmp_path)

    @pytest.mark.xfail(reason="it keeps objects as files", raises=StoreUnavailableError)
    def test_odd_names_stay_themselves(self, tmp_path: Path) -> None:
        self.retry = replace(PATIENT, limit=0.5)
        super().test_odd_names_stay_themselves(tmp_path)


def test_large_objects_go_up_and_come_down_on_a_second_server(
    second_gcs: str, tmp_path: Path
) -> None:
    store = GcsStore("bucket", service=Service(second_gcs, anonymous=True), retry=PATIENT)
    content = bytes(range(256)) * (100 << 10)
    (tmp_path / "source").write_bytes(content)

    store.upload("o", tmp_path / "source")
    store.download("o", tmp_path / "target")

    assert (tmp_path / "target").read_bytes() == content
