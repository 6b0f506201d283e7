"""The durable log in the store, for when a job's folder is gone or on another machine."""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, BinaryIO, Final, cast

from kinetic.backends import LogLine
from kinetic.local.logs import (
    LineSplitter,
    interleaved,
    last_lines,
    tail_size,
    whole_lines,
    with_note,
)
from kinetic.local.reporting import read_end
from kinetic.local.verdict import deciding
from kinetic.parallel import Crew, Task
from kinetic_payload.layout import JobObjects
from kinetic_payload.records import JobRecord
from kinetic_payload.store import Store

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_AHEAD: Final = 8
"""Chunks, of at most some MiB each, that are read at once over a network."""


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
        self._chunks = _contents(store, (info.name for info in store.list(prefix)))
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


def _contents(store: Store, names: Iterable[str]) -> Iterator[bytes]:
    """Iterate over the contents of *names*; over a network a few are on their way at any time."""
    workers = min(store.concurrency, _AHEAD)
    coming: deque[Task[bytes]] = deque()
    with Crew(workers) as crew:
        for name in names:
            coming.append(crew.start(partial(store.read, name)))
            if len(coming) >= workers:
                yield coming.popleft().result()
        while coming:
            yield coming.popleft().result()


def _tail(store: Store, prefix: str, count: int) -> list[str]:
    data, cut = _end(store, [info.name for info in store.list(prefix)], count)
    return with_note(list(whole_lines(io.BytesIO(data)))[-count:] if count > 0 else [], cut=cut)


def _end(store: Store, names: list[str], count: int) -> tuple[bytes, bool]:
    """Return the end of the log that holds *count* lines, and whether these lack a part."""
    chunks: deque[bytes] = deque()

    def backwards() -> Iterator[bytes]:
        for name in reversed(names):
            chunks.appendleft(store.read(name))
            yield chunks[0]

    size, cut = tail_size(backwards(), count)
    return (b"".join(chunks)[-size:] if size else b""), cut


def follow_stored(
    store: Store,
    record: JobRecord,
    *,
    tail: int | None,
    ended: Callable[[], bool],
    pause: Callable[[], None],
) -> Iterator[LogLine]:
    """Iterate over the stored log from the latest attempt on, until *ended* and all of it was read."""
    attempt = max(_numbers(store, JobObjects(record.job_id).logs), default=1)
    share = None if tail is None else -(-tail // record.hosts)
    while True:
        hosts = [_Host(store, record.job_id, attempt, host, share) for host in range(record.hosts)]
        while True:
            # Asked before reading: what was written before the end is read after it. And in this
            # order: another attempt may begin and end between the two questions.
            over = ended()
            newer = attempt <= record.retries and _has_begun(store, record.job_id, attempt + 1)
            over = over or newer
            quiet = True
            for host in hosts:
                for line in host.read():
                    quiet = False
                    yield line
            if over:
                break
            if quiet:
                pause()
        for host in hosts:
            yield from host.close()
        if not newer:
            return
        yield LogLine(_turn(store, record, attempt), 0, attempt + 1)
        attempt, share = attempt + 1, None


class _Host:
    """The stored log of one host of one attempt, read as it grows."""

    def __init__(
        self, store: Store, job_id: str, attempt: int, host: int, tail: int | None
    ) -> None:
        self._store = store
        self._prefix = JobObjects(job_id).log_chunks(attempt, host)
        self._attempt = attempt
        self._host = host
        self._tail = tail
        self._last = ""
        self._cut = False
        self._lines = LineSplitter()

    def read(self) -> Iterator[LogLine]:
        """Iterate over the lines that were written since the last time."""
        names = [info.name for info in self._store.list(self._prefix, start_after=self._last)]
        if not names:
            yield from self._said(self._lines.bar())
            return
        self._last = names[-1]
        tail, self._tail = self._tail, None
        if tail is None:
            for data in _contents(self._store, names):
                yield from self._said(self._lines.feed(data))
            return
        data, self._cut = _end(self._store, names, tail)
        whole = self._lines.feed(data)
        # A last line that is not at its end yet is one of them.
        wanted = tail if data.endswith(b"\n") else tail - 1
        yield from self._said(whole[-wanted:] if wanted > 0 else [])

    def close(self) -> list[LogLine]:
        """Return the last line if nothing ended it."""
        return self._said(self._lines.close())

    def _said(self, lines: list[str]) -> list[LogLine]:
        noted = with_note(lines, cut=self._cut)
        self._cut = self._cut and not lines
        return [LogLine(text, self._host, self._attempt) for text in noted]


def _has_begun(store: Store, job_id: str, attempt: int) -> bool:
    return store.stat(JobObjects(job_id).claim(attempt, 0)) is not None


def _turn(store: Store, record: JobRecord, attempt: int) -> str:
    found = [read_end(store, record.job_id, attempt, host) for host in range(record.hosts)]
    ends = [end for end in found if end is not None]
    said = deciding(ends).message.rstrip(".") if ends else ""
    why = f": {said}" if said else ""
    return f"[kinetic] Attempt {attempt} ended{why}. Attempt {attempt + 1} begins."
