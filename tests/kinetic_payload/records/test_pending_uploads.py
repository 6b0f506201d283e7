from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kinetic_payload.errors import (
    IntegrityError,
    PreconditionFailedError,
    StoreError,
    StorePermissionError,
)
from kinetic_payload.records.pending_uploads import PendingUploads
from kinetic_payload.records.signing import UNSIGNED, Signer
from kinetic_payload.stores.store import ObjectInfo
from kinetic_payload.testing import MemoryStore

VALUE, REPORT = "job/attempts/1/host-0.pkl", "job/attempts/1/host-0.json"
DATA = b"value" * 1000


def a_result(folder: Path) -> PendingUploads:
    pending_uploads = PendingUploads(folder / "pending_uploads")
    digest = hashlib.sha256(DATA).hexdigest()
    pending_uploads.write(VALUE, DATA)
    pending_uploads.write(REPORT, json.dumps({"value": {"name": VALUE, "digest": digest}}).encode())
    return pending_uploads


class Refusing(MemoryStore):
    def write(self, name: str, data: bytes, *, if_generation: int | None = None) -> ObjectInfo:
        raise StorePermissionError("no")


def test_a_result_is_stored_whole_and_then_nothing_is_left(tmp_path: Path) -> None:
    pending_uploads, store = a_result(tmp_path), MemoryStore()
    assert pending_uploads.since is not None

    pending_uploads.store_all(store, UNSIGNED)

    assert store.read(VALUE) == DATA
    assert store.stat(REPORT) is not None
    assert list(tmp_path.iterdir()) == []
    assert (pending_uploads.host_outcomes(), pending_uploads.since) == ({}, None)


def test_a_refused_result_stays_and_is_stored_later(tmp_path: Path) -> None:
    pending_uploads, store = a_result(tmp_path), Refusing()

    with pytest.raises(StorePermissionError):
        pending_uploads.store_all(store, UNSIGNED)

    assert list(pending_uploads.host_outcomes()) == [REPORT]
    pending_uploads.store_all(MemoryStore(), UNSIGNED)
    assert pending_uploads.host_outcomes() == {}


def test_a_signed_jobs_value_replaces_another_one(tmp_path: Path) -> None:
    class Meddled(MemoryStore):
        meddles = 2

        def upload(self, name: str, *args: Any, **options: Any) -> Any:
            self.meddles -= 1
            if self.meddles >= 0:
                self.write(name, b"another")
            return super().upload(name, *args, **options)

    pending_uploads, store = a_result(tmp_path), Meddled()
    digest = hashlib.sha256(DATA).hexdigest()
    with pytest.raises(StoreError, match="was overwritten") as failure:
        pending_uploads.store_value(store, VALUE, digest, replace=True)
    assert not isinstance(failure.value, PreconditionFailedError)  # That would not be tried again.

    pending_uploads.store_value(store, VALUE, digest, replace=True)

    assert store.read(VALUE) == DATA
    assert not pending_uploads.has(VALUE)


def test_an_equal_value_in_the_store_is_kept_and_another_one_is_an_error(
    tmp_path: Path,
) -> None:
    same, other = MemoryStore(), MemoryStore()
    same.write(VALUE, DATA)
    other.write(VALUE, b"another")

    a_result(tmp_path).store_all(same, UNSIGNED)
    with pytest.raises(PreconditionFailedError):
        a_result(tmp_path).store_all(other, UNSIGNED)

    assert other.read(VALUE) == b"another"


@pytest.mark.parametrize("forged", [b"{}", b"\xff" * (9 << 20)], ids=["unsigned", "too large"])
def test_a_report_replaces_one_that_the_key_refuses(tmp_path: Path, forged: bytes) -> None:
    store, pending_uploads, key = MemoryStore(), a_result(tmp_path), Signer(b"k" * 32)
    pending_uploads.write(REPORT, key.sign(pending_uploads.host_outcomes()[REPORT], REPORT))
    store.write(REPORT, forged)

    pending_uploads.store_all(store, key)

    key.verify(store.read(REPORT), REPORT)
    assert pending_uploads.host_outcomes() == {}
    earlier = store.read(REPORT)
    pending_uploads.write(REPORT, key.sign(b'{"another": "end"}', REPORT))
    pending_uploads.store_all(store, key)
    assert store.read(REPORT) == earlier


def test_a_file_that_was_damaged_is_not_stored(tmp_path: Path) -> None:
    pending_uploads, store = a_result(tmp_path), MemoryStore()
    pending_uploads.write(VALUE, DATA[:-1])

    with pytest.raises(IntegrityError, match="digest"):
        pending_uploads.store_all(store, UNSIGNED)

    assert store.stat(VALUE) is None
    assert store.stat(REPORT) is None


def test_a_write_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def fail() -> None:
        with PendingUploads(tmp_path / "pending_uploads").writer(VALUE) as stream:
            stream.write(DATA)
            raise ValueError("half way")

    with pytest.raises(ValueError, match="half"):
        fail()

    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_folder_that_another_host_removes_meanwhile_is_made_again(
    tmp_path: Path,
) -> None:
    # The system tells a hook that a file is about to be opened: then the folder is removed.
    code = """
import os, pathlib, sys
from kinetic_payload.records.pending_uploads import PendingUploads

pending_uploads, name, left = PendingUploads(sys.argv[1]), "job/attempts/1/host-0.json", [sys.argv[1]]
folder = pathlib.Path(sys.argv[1], name).parent

def remove(event, arguments):
    if event == "open" and str(arguments[0]).startswith(f"{folder}/") and left:
        left.clear()
        os.rmdir(folder)

sys.addaudithook(remove)
pending_uploads.write(name, b"report")
assert not left and pending_uploads.host_outcomes() == {name: b"report"}
"""
    subprocess.run([sys.executable, "-c", code, tmp_path / "pending_uploads"], check=True)
