"""Logs in the store, read when a job's folder is gone or on another machine.

Logs are not signed, so anybody who can write to a bucket may have written them. Colours are kept;
other control characters are escaped, and the size of a chunk is limited.
"""

from __future__ import annotations

import io
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, BinaryIO, Final, cast

from kinetic.backends.backend import LogLine
from kinetic.jobs.attempts import Verify, attempts_of, logged_attempts
from kinetic.jobs.log_lines import (
    LineSplitter,
    interleaved,
    last_lines,
    separator,
    tail_size,
    whole_lines,
    with_note,
)
from kinetic.jobs.outages import lasting, log_outages
from kinetic.jobs.outcome import stored_outcome
from kinetic.log_parts import joined
from kinetic.waiting import STORE_POLL, sleep
from kinetic_payload.frozen import frozen
from kinetic_payload.layout import STDERR_MARK, JobObjects, number_in
from kinetic_payload.limits import MOST_CHUNK, MOST_HOSTS
from kinetic_payload.printable import printable_log
from kinetic_payload.records.attempt_result import deciding
from kinetic_payload.records.job import JobRecord
from kinetic_payload.records.signing import UNSIGNED
from kinetic_payload.stores.store import ObjectInfo, Store
from kinetic_payload.threads import Executor, Future

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_AHEAD: Final = 8
"""Parallel reads over a network, for all hosts together."""
_IN_MEMORY: Final = 64 << 20
"""Bytes that these reads hold in memory together; each may have `_LEAST_READ` bytes in any case."""
_LEAST_READ: Final = 64 << 10
_CHUNK: Final = re.compile(r"[0-9]{8}")


def latest_lines(
    store: Store, record: JobRecord, verify: Verify, *, tail: int | None = None
) -> Iterator[LogLine]:
    """Iterate over the stored log of the job's latest attempt, or over its last *tail* lines."""
    known = known_attempts(store, record, verify)
    logged = [number for number in stored_attempts(store, record.job_id) if number in known]
    for attempt in logged[-1:]:
        yield from stored_lines(store, record.job_id, attempt, tail=tail, most=record.hosts)


def log_in_store(
    store: Store,
    record: JobRecord,
    verify: Verify,
    *,
    follow: bool,
    tail: int | None,
    stopped: Callable[[], bool],
) -> Iterator[LogLine]:
    """Iterate over the stored log; with *follow* as it is written, until there is an outcome or *stopped*."""
    if not follow:
        return latest_lines(store, record, verify, tail=tail)
    store = lasting(store, log_outages(), stopped=stopped)
    return follow_stored(
        store,
        record,
        tail=tail,
        ended=lambda: stopped() or stored_outcome(store, record.job_id, verify) is not None,
        pause=lambda: sleep(STORE_POLL),
        verify=verify,
    )


def known_attempts(store: Store, record: JobRecord, verify: Verify) -> list[int]:
    """Return the attempts whose log can be shown, in order; after a clean-up, those that have a stored log.

    Anybody who can write to a bucket may have added logs of others.
    """
    found = logged_attempts(store, record, verify)
    return stored_attempts(store, record.job_id) if found is None else found


def stored_attempts(store: Store, job_id: str) -> list[int]:
    """Return the attempts that have a stored log, in order, whoever wrote it."""
    return sorted(_numbers(store, JobObjects(job_id).logs))


def stored_lines(
    store: Store,
    job_id: str,
    attempt: int,
    *,
    tail: int | None = None,
    most: int = MOST_HOSTS,
    host: int | None = None,
) -> Iterator[LogLine]:
    """Iterate over the stored log of *attempt*, or over its last *tail* lines.

    Anybody who can write to a bucket may have added logs of hosts: only the first *most* are read. *host* selects
    one of them.
    """
    names = JobObjects(job_id)
    found_hosts = _numbers(store, f"{names.logs}{attempt}/", "host-")
    hosts = sorted(each for each in found_hosts if each < most and host in (None, each))
    hosts = hosts[:MOST_HOSTS]
    prefixes = {each: names.log_chunks(attempt, each) for each in hosts}
    if tail is None:
        reading = _Reading.of(store, len(hosts))
        found = interleaved([_lines(reading, *each, attempt) for each in prefixes.items()])
    else:
        ends = [_tail(store, *each, attempt, tail) for each in prefixes.items()]
        found = last_lines(ends, tail)
    shown = _shown_by(store)
    yield from (replace(line, text=shown(line.text), hosts=len(hosts)) for line in found)


def _shown_by(store: Store) -> Callable[[str], str]:
    """Return a function that makes a line of a log in *store* safe to print."""
    return printable_log if store.location.kind == "gs" else str


def _numbers(store: Store, prefix: str, before: str = "") -> list[int]:
    """Return the numbers in the names of folders below *prefix*, which begin with *before*."""
    names = (folder.removeprefix(prefix + before)[:-1] for folder in store.folders(prefix))
    return [number for name in names if (number := number_in(name)) is not None]


def _chunks(store: Store, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
    """Iterate over the chunks of a log; other objects are ignored."""
    for info in store.list(prefix, start_after=start_after):
        if _CHUNK.fullmatch(info.name, len(prefix)):
            yield info


@frozen()
class _Reading:
    """How to read the chunks of logs: with how many workers, and how many bytes at a time."""

    store: Store
    workers: int
    size: int

    @classmethod
    def of(cls, store: Store, logs: int) -> _Reading:
        """Return how to read *logs* logs together, in memory that hardly depends on their number."""
        workers = max(1, min(store.concurrency, _AHEAD // max(logs, 1)))
        size = _IN_MEMORY // (max(logs, 1) * workers)
        return cls(store, workers, max(_LEAST_READ, min(size, MOST_CHUNK)))

    def contents(self, chunks: Iterable[ObjectInfo]) -> Iterator[bytes]:
        """Iterate over the contents of *chunks*; over a network, a few are read in parallel."""
        coming: deque[Future[bytes]] = deque()
        with Executor(self.workers) as executor:
            for read in self._reads(chunks):
                coming.append(executor.submit(read))
                if len(coming) >= self.workers:
                    yield coming.popleft().result()
            while coming:
                yield coming.popleft().result()

    def _reads(self, chunks: Iterable[ObjectInfo]) -> Iterator[Callable[[], bytes]]:
        for info in chunks:
            end = min(info.size, MOST_CHUNK)
            for start in range(0, end, self.size):
                part = {"start": start, "end": min(start + self.size, end)}
                yield partial(self.store.read, info.name, **part)
            if info.size > end:
                note = f"\n{STDERR_MARK}[kinetic] {info.size - end} bytes of the log are left out here.\n".encode()
                yield partial(bytes, note)


def _lines(reading: _Reading, host: int, prefix: str, attempt: int) -> Iterator[LogLine]:
    stream = cast("BinaryIO", io.BufferedReader(_Chunks(reading, prefix)))
    return whole_lines(stream, host, attempt)


class _Chunks(io.RawIOBase):
    """The chunks of a log as one stream."""

    def __init__(self, reading: _Reading, prefix: str) -> None:
        self._chunks = reading.contents(_chunks(reading.store, prefix))
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


def _tail(store: Store, host: int, prefix: str, attempt: int, count: int) -> list[LogLine]:
    data, cut = _end(store, list(_chunks(store, prefix)), count)
    lines = list(joined(whole_lines(io.BytesIO(data), host, attempt)))
    return with_note(lines[-count:] if count > 0 else [], cut=cut)


def _end(store: Store, found: list[ObjectInfo], count: int) -> tuple[bytes, bool]:
    """Return the end of the log that holds *count* lines, and whether their beginning is cut."""
    chunks: deque[bytes] = deque()

    def backwards() -> Iterator[bytes]:
        for info in reversed(found):
            start = max(0, info.size - MOST_CHUNK)
            chunks.appendleft(store.read(info.name, start=start, end=info.size))
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
    verify: Verify = UNSIGNED.verify,
) -> Iterator[LogLine]:
    """Iterate over the stored log from the latest attempt on, until *ended* and everything was read.

    Another attempt has begun if it has a claim or a report that *verify* accepts.
    """
    attempt = max(logged_attempts(store, record, verify) or (), default=1)
    share = None if tail is None else -(-tail // record.hosts)
    newer: int | None = None

    def over() -> bool:
        # In this order: another attempt may begin and end between the checks.
        nonlocal newer
        job_ended = ended()
        newer = None
        # One request each time, and more only if there is something new.
        if any(n > attempt for n in _numbers(store, JobObjects(record.job_id).attempts)):
            later = (n for n in logged_attempts(store, record, verify) or () if n > attempt)
            newer = min(later, default=None)
        return job_ended or newer is not None

    while True:
        hosts = [_Host(store, record.job_id, attempt, host, share) for host in range(record.hosts)]
        yield from _follow(hosts, over, pause)
        if newer is None:
            return
        yield attempt_separator(store, record, verify, attempt, newer)
        attempt, share = newer, None


def follow_stored_host(
    store: Store,
    job_id: str,
    attempt: int,
    host: int,
    *,
    ended: Callable[[], bool],
    pause: Callable[[], object],
) -> Iterator[LogLine]:
    """Iterate over the stored log of one host of one attempt, until it has *ended* and everything was read."""
    return _follow([_Host(store, job_id, attempt, host, None)], ended, pause)


def _follow(
    hosts: Sequence[_Host], ended: Callable[[], bool], pause: Callable[[], object]
) -> Iterator[LogLine]:
    over = False
    while not over:
        # Checked before reading, so that everything that was written before the end is read.
        over = ended()
        quiet = True
        for host in hosts:
            for line in host.read():
                quiet = False
                yield line
        if quiet and not over:
            pause()
    for host in hosts:
        yield from host.close()


class _Host:
    """The stored log of one host of one attempt, read as it grows."""

    def __init__(
        self, store: Store, job_id: str, attempt: int, host: int, tail: int | None
    ) -> None:
        self._store = store
        self._reading = _Reading.of(store, 1)
        self._shown = _shown_by(store)
        self._prefix = JobObjects(job_id).log_chunks(attempt, host)
        self._tail = tail
        self._last = ""
        self._cut = False
        self._lines = LineSplitter(host, attempt)

    def read(self) -> Iterator[LogLine]:
        """Iterate over the lines that were written since the last call."""
        # List all chunks before reading any: otherwise this loop would not end while a job writes fast.
        chunks = list(_chunks(self._store, self._prefix, self._last))
        if not chunks:
            return
        self._last = chunks[-1].name
        tail, self._tail = self._tail, None
        if tail is None:
            for data in self._reading.contents(chunks):
                yield from self._log_lines(self._lines.feed(data))
            return
        data, self._cut = _end(self._store, chunks, tail)
        whole = self._lines.feed(data)
        # An unfinished last line is one of the *tail* lines.
        wanted = tail if data.endswith(b"\n") else max(tail - 1, 0)
        ends = [number for number, line in enumerate(whole, 1) if line.end]
        yield from self._log_lines(whole[ends[-wanted - 1] if len(ends) > wanted else 0 :])

    def close(self) -> list[LogLine]:
        """Return the last line if nothing ended it."""
        return self._log_lines(self._lines.close())

    def _log_lines(self, lines: list[LogLine]) -> list[LogLine]:
        noted = with_note(lines, cut=self._cut)
        self._cut = self._cut and not lines
        return [replace(line, text=self._shown(line.text)) for line in noted]


def attempt_separator(
    store: Store, record: JobRecord, verify: Verify, attempt: int, newer: int
) -> LogLine:
    """Return the line between the logs of two attempts, with the reason why the first one ended."""
    ends = attempts_of(store, record, verify).ends.get(attempt)
    return separator(attempt, newer, deciding(ends).message if ends else "")
