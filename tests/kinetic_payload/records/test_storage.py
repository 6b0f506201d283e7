from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kinetic_payload.errors import RecordError, StoreError
from kinetic_payload.records.encode import encode
from kinetic_payload.records.outcome import Outcome
from kinetic_payload.records.signing import UNSIGNED, Signer
from kinetic_payload.records.storage import read_verified, write_once
from kinetic_payload.stores import open_store
from kinetic_payload.stores.store import Location, Store

KEY = Signer(b"k" * 32)
NAME = "job/outcome.json"
TOO_LARGE = b"x" * (1 << 20)


def an_outcome(message: str = "") -> bytes:
    return encode(Outcome(job_id="job", status="failed", message=message))


FORGED = {
    "unsigned": an_outcome("forged"),
    "signed with another key": Signer(b"o" * 32).sign(an_outcome("forged"), NAME),
    "of another job": KEY.sign(an_outcome("forged"), "other/outcome.json"),
    "no record": b"\xff",
    "too large": TOO_LARGE,
}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(Location("folder", str(tmp_path)))


class Racing:
    """A store in which something happens just before a write."""

    def __init__(self, store: Store, *before: Callable[[], object]) -> None:
        self.store = store
        self.before = list(before)

    def write(self, *args: Any, **options: Any) -> Any:
        if self.before:
            self.before.pop(0)()
        return self.store.write(*args, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


def message(data: bytes | None) -> str:
    return str(json.loads(data or b"{}").get("message"))


def test_a_record_is_written_signed_and_the_first_one_stays(store: Store) -> None:
    first = write_once(store, KEY, NAME, an_outcome("first"))

    KEY.verify(first, NAME)
    assert write_once(store, KEY, NAME, an_outcome("second")) == first
    assert store.read(NAME) == first == read_verified(store, KEY, NAME)


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
def test_a_record_that_the_key_does_not_verify_is_replaced(store: Store, forged: bytes) -> None:
    store.write(NAME, forged)

    assert read_verified(store, KEY, NAME) is None
    assert message(write_once(store, KEY, NAME, an_outcome("ours"))) == "ours"
    assert message(read_verified(store, KEY, NAME)) == "ours"


@pytest.mark.parametrize("written", ["another process'", None])
def test_a_record_that_was_written_or_deleted_meanwhile_counts(
    store: Store, written: str | None
) -> None:
    def meanwhile() -> None:
        if written is None:
            store.delete(NAME)
        else:
            write_once(store, KEY, NAME, an_outcome(written))

    store.write(NAME, FORGED["unsigned"])
    racing: Any = Racing(store, lambda: None, meanwhile)

    counts = write_once(racing, KEY, NAME, an_outcome("ours"))

    assert message(counts) == message(store.read(NAME)) == (written or "ours")


def test_a_record_that_is_overwritten_again_and_again_is_an_error(store: Store) -> None:
    racing = Racing(store, *[lambda: store.write(NAME, FORGED["unsigned"])] * 1000)

    with pytest.raises(StoreError, match="again and again"):
        write_once(racing, KEY, NAME, an_outcome("ours"))  # type: ignore[arg-type]


def test_without_a_key_the_first_record_stays_even_if_it_is_no_record(store: Store) -> None:
    store.write(NAME, b"\xff")

    assert write_once(store, UNSIGNED, NAME, an_outcome()) == b"\xff" == store.read(NAME)
    store.write(NAME, TOO_LARGE)
    with pytest.raises(RecordError):
        write_once(store, UNSIGNED, NAME, an_outcome())
    assert read_verified(store, UNSIGNED, "job/none.json") is None
