"""The durable log in the store, for when a job's folder is gone."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, BinaryIO, cast

from kinetic.backends import LogLine
from kinetic.local.logs import interleaved, last_lines, whole_lines
from kinetic_payload.layout import JobObjects
from kinetic_payload.store import Store

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


def stored_lines(store: Store, job_id: str, *, tail: int | None = None) -> Iterator[LogLine]:
    """Iterate over the stored log of the latest attempt, or over its last *tail* lines."""
    names = JobObjects(job_id)
    attempts = _numbers(store, names.logs)
    if not attempts:
        return
    attempt = max(attempts)
    hosts = sorted(_numbers(store, f"{names.logs}{attempt}/"))
    prefixes = {host: names.log_chunks(attempt, host) for host in hosts}
    if tail is None:
        parts = [(host, _lines(store, prefix)) for host, prefix in prefixes.items()]
        found = interleaved(parts, attempt)
    else:
        ends = [(host, _tail(store, prefix, tail)) for host, prefix in prefixes.items()]
        found = last_lines(ends, attempt, tail)
    yield from (replace(line, hosts=len(hosts)) for line in found)


def _numbers(store: Store, prefix: str) -> list[int]:
    names = (folder.removeprefix(prefix).rstrip("/") for folder in store.folders(prefix))
    numbers = (name.removeprefix("host-") for name in names)
    return [int(number) for number in numbers if number.isdigit()]


def _lines(store: Store, prefix: str) -> Iterator[str]:
    yield from whole_lines(cast("BinaryIO", io.BufferedReader(_Chunks(store, prefix))))


class _Chunks(io.RawIOBase):
    """The chunks of a log as one stream."""

    def __init__(self, store: Store, prefix: str) -> None:
        self._chunks = (store.read(info.name) for info in store.list(prefix))
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        while not self._left:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._left = memoryview(chunk)
        target = memoryview(buffer).cast("B")
        size = min(len(target), len(self._left))
        target[:size] = self._left[:size]
        self._left = self._left[size:]
        return size


def _tail(store: Store, prefix: str, count: int) -> list[str]:
    data = b""
    for info in reversed(list(store.list(prefix))):
        if data.count(b"\n") > count:
            break
        data = store.read(info.name) + data
    return list(whole_lines(io.BytesIO(data)))[-count:] if count > 0 else []
