from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from kinetic_payload.errors import BucketNotFoundError, StoreError, StorePermissionError
from kinetic_runner.parent.log_upload import LogUploader


class Pages:
    """The part of a store that a log uses; writes raise *errors* first, and wait while it is not open."""

    def __init__(self, *errors: Exception) -> None:
        self.pages: dict[str, bytes] = {}
        self.errors = list(errors)
        self.open = threading.Event()
        self.open.set()
        self.asked = threading.Event()

    def write(self, name: str, data: bytes) -> None:
        self.asked.set()
        self.open.wait()
        if self.errors:
            raise self.errors.pop(0)
        self.pages[name] = data

    @property
    def text(self) -> bytes:
        return b"".join(self.pages[name] for name in sorted(self.pages))


class Clock:
    """A clock that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def upload_to(store: Any, **options: Any) -> LogUploader:
    return LogUploader(store, "{:08d}".format, **options)


def test_a_short_log_is_one_chunk_and_an_empty_one_is_none():
    store = Pages()
    log = upload_to(store)
    log.append(b"a\n")
    log.append(b"b\n")

    log.close(10)
    upload_to(store).close(10)

    assert store.pages == {"00000000": b"a\nb\n"}


@pytest.mark.parametrize("in_time", [True, False])
def test_lines_after_the_end_are_stored(in_time):
    store, clock = Pages(), Clock()
    log = upload_to(store, clock=clock)
    for number in range(3):
        log.append(b"%d\n" % number)
        if in_time:
            clock.now += 10
            log.send_due()  # In a thread.
        log.close(10)

    assert (store.text, log.lost) == (b"0\n1\n2\n", 0)


def test_chunks_are_bounded_in_order_and_byte_by_byte():
    store = Pages()
    log = upload_to(store, chunk_size=10)
    text = bytes(range(250)) * 2

    for start in range(0, len(text), 7):
        log.append(text[start : start + 7])
    log.close(300)

    assert store.text == text
    assert {len(page) for page in store.pages.values()} == {10}


def test_output_is_uploaded_after_a_few_seconds(wait_until):
    store, clock = Pages(), Clock()
    log = upload_to(store, chunk_seconds=5, clock=clock)
    assert log.due_in is None
    log.append(b"slow\n")
    clock.now = 4
    log.append(b"er\n")
    log.send_due()
    assert log.due_in == 1

    clock.now = 5
    log.send_due()

    wait_until(lambda: store.pages)
    assert (store.text, log.due_in) == (b"slow\ner\n", None)
    log.close(10)


def test_after_failures_the_store_has_everything_in_order():
    store = Pages(StoreError("away"), OSError("away"), StorePermissionError("not now"))
    log = upload_to(store, chunk_size=4)

    log.append(b"one-two-three-")
    log.close(300)

    assert store.text == b"one-two-three-"
    assert (log.lost, log.error) == (0, None)


@pytest.mark.parametrize(
    ("error", "seconds"), [(StoreError("gone for good"), 0.2), (BucketNotFoundError("gone"), 600)]
)
def test_a_store_that_fails_until_the_end_loses_the_log_and_the_error_is_kept(error, seconds):
    log = upload_to(Pages(*[error] * 1000))
    log.append(b"12345")

    log.close(seconds)

    assert log.lost == 5
    assert "gone" in log.error


def test_a_store_that_hangs_is_abandoned_and_a_late_response_changes_nothing():
    store = Pages(StorePermissionError("no"))
    store.open.clear()
    others = set(threading.enumerate())
    log = upload_to(store, chunk_size=4)
    log.append(b"12345")
    [writer] = [
        each for each in threading.enumerate() if each.name == "log-upload" and each not in others
    ]

    log.close(0.2)
    lost = log.lost
    store.open.set()
    writer.join(300)

    assert (lost, log.lost) == (5, 5)


class Slow(Clock, Pages):
    """Fails before it takes a chunk, and needs eight seconds for it; looking at its clock takes time."""

    def __init__(self) -> None:
        Pages.__init__(self)
        self.failed: set[str] = set()

    def __call__(self) -> float:
        self.now += 0.01
        return self.now

    def write(self, name: str, data: bytes) -> None:
        self.now += 4
        if name not in self.failed:
            self.failed.add(name)
            raise StoreError("busy")
        super().write(name, data)


def test_a_slow_store_that_makes_progress_is_not_abandoned():
    store = Slow()
    log = upload_to(store, chunk_size=4, clock=store)
    log.append(b"one-two-three-")

    log.close(10)

    assert store.text == b"one-two-three-"
    assert (log.lost, log.error) == (0, None)


def test_output_that_does_not_fit_into_memory_waits_on_disk(tmp_path: Path):
    store = Pages()
    store.open.clear()
    log = upload_to(store, spool=tmp_path, chunk_size=1000, in_memory=2000, on_disk=50_000)
    text = b"".join(b"%09d\n" % n for n in range(4000))

    for start in range(0, 40_000, 100):
        log.append(text[start : start + 100])
    assert not log.full
    store.open.set()
    log.close(300)

    assert store.text == text
    assert list(tmp_path.iterdir()) == []


def test_output_is_held_back_for_a_while_and_then_the_oldest_is_dropped():
    store, clock = Pages(), Clock()
    store.open.clear()
    log = upload_to(store, chunk_size=10, in_memory=20, on_disk=100, stall_seconds=10, clock=clock)
    for n in range(10):
        log.append(b"%09d\n" % n)
    store.asked.wait()  # Its writer has the first: what is given up are those behind it.
    clock.now = 9.9
    assert log.full

    clock.now = 10
    assert not log.full
    for n in range(10, 20):
        log.append(b"%09d\n" % n)
    store.open.set()
    log.close(300)

    assert log.lost == 100
    assert store.text.endswith(b"%09d\n" % 19)
    assert f"{log.lost} bytes of the log are missing here".encode() in store.text
    assert store.text.count(b"missing") == 1
