"""Upload a host's log to the store as it is written, in numbered chunks."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from math import inf
from pathlib import Path
from time import monotonic
from typing import IO, Final

from kinetic_payload.backoff import Backoff
from kinetic_payload.errors import KineticError
from kinetic_payload.stores.store import Store
from kinetic_runner.store_retries import GONE

CHUNK_SIZE: Final = 4 * 1024 * 1024
CHUNK_SECONDS: Final = 5.0
_IN_MEMORY: Final = 16 * 1024 * 1024
_ON_DISK: Final = 256 * 1024 * 1024
_STALL_SECONDS: Final = 10.0
"""Seconds without any progress of the store after which output is no longer held back."""


class LogUploader:
    """Accepts output at any speed; a thread uploads it.

    Output that is not uploaded yet waits in memory, then on disk. If that is not enough, `full` is True as
    long as the store makes progress, and the caller holds the output back. If the store makes no progress,
    the oldest waiting chunks are dropped, because the end of a log matters most. A line in the log marks the
    gap.
    """

    def __init__(
        self,
        store: Store,
        name_of: Callable[[int], str],
        *,
        spool: Path | None = None,
        chunk_size: int = CHUNK_SIZE,
        chunk_seconds: float = CHUNK_SECONDS,
        in_memory: int = _IN_MEMORY,
        on_disk: int = _ON_DISK,
        stall_seconds: float = _STALL_SECONDS,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._store = store
        self._name_of = name_of
        self._spool = spool
        self._chunk_size = chunk_size
        self._chunk_seconds = chunk_seconds
        self._in_memory = in_memory
        self._on_disk = on_disk
        self._stall_seconds = stall_seconds
        self._clock = clock
        self._buffer = bytearray()
        self._begun = 0.0
        self._uploader: _Uploader | None = None

    @property
    def error(self) -> str | None:
        """The error of the last chunk that could not be stored; None once a chunk is stored again."""
        return self._uploader.error if self._uploader is not None else None

    @property
    def lost(self) -> int:
        """How many bytes were dropped."""
        return self._uploader.lost if self._uploader is not None else 0

    @property
    def full(self) -> bool:
        """Whether output should be held back for a moment."""
        uploader = self._uploader
        return (
            uploader is not None
            and uploader.held + self._chunk_size > self._on_disk
            and self._clock() - uploader.progress < self._stall_seconds
        )

    @property
    def due_in(self) -> float | None:
        """Seconds until `send_due` has something to do."""
        if not self._buffer:
            return None
        return max(0.0, self._begun + self._chunk_seconds - self._clock())

    def append(self, data: bytes) -> None:
        """Add the next piece of output."""
        if not self._buffer:
            self._begun = self._clock()
        self._buffer += data
        while len(self._buffer) >= self._chunk_size:
            self._send(self._chunk_size)

    def send_due(self) -> None:
        """Upload the buffered output if it has waited long enough."""
        if self.due_in == 0.0:
            self._send(len(self._buffer))

    def close(self, seconds: float) -> None:
        """Upload the rest; drop it once the store accepts nothing for *seconds*.

        `lost` and `error` show whether output was dropped. Output that is appended later needs another `close`.
        """
        if self._buffer:
            self._send(len(self._buffer), in_thread=self._uploader is not None)
        if self._uploader is not None:
            self._uploader.close(seconds)

    def _send(self, size: int, *, in_thread: bool = True) -> None:
        uploader = self._uploader
        if uploader is None:
            uploader = self._uploader = _Uploader(
                self._store, self._name_of, self._clock, start=in_thread
            )
        spill = uploader.held + size > self._in_memory
        stuck = self._clock() - uploader.progress >= self._stall_seconds
        while stuck and uploader.held + size > self._on_disk and uploader.drop_oldest():
            continue
        chunk = bytes(self._buffer[:size])
        del self._buffer[:size]
        uploader.put(self._spill(chunk) if spill else chunk, size)
        self._begun = self._clock()

    def _spill(self, chunk: bytes) -> bytes | IO[bytes]:
        import tempfile

        try:
            # One file for each chunk, without a name: the system frees its space when it is closed.
            file = tempfile.TemporaryFile(dir=self._spool)  # noqa: SIM115
        except OSError:
            return chunk
        try:
            file.write(chunk)
            file.flush()
        except OSError:
            file.close()
            return chunk
        return file


class _Uploader:
    """Uploads chunks in a thread; if the thread was not started, `close` uploads them."""

    def __init__(
        self,
        store: Store,
        name_of: Callable[[int], str],
        clock: Callable[[], float],
        *,
        start: bool,
    ) -> None:
        self.held = 0
        self.lost = 0
        self.error: str | None = None
        self.progress = clock()
        self._store = store
        self._name_of = name_of
        self._clock = clock
        self._sequence = 0
        self._missing = 0
        self._waiting: deque[tuple[bytes | IO[bytes], int]] = deque()
        self._changed = threading.Condition()
        self._seconds: float | None = None
        self._over = False
        self._thread = threading.Thread(target=self._work, name="log-upload", daemon=True)
        if start:
            self._thread.start()

    def put(self, chunk: bytes | IO[bytes], size: int) -> None:
        with self._changed:
            if not self.held:
                self.progress = self._clock()
            self._waiting.append((chunk, size))
            self.held += size
            self._changed.notify()

    def drop_oldest(self) -> bool:
        """Drop the chunk that waits longest; return whether there was one."""
        with self._changed:
            if not self._waiting:
                return False
            chunk, size = self._waiting.popleft()
            if not isinstance(chunk, bytes):
                chunk.close()
            self.held -= size
            self.lost += size
            self._missing += size
            return True

    def close(self, seconds: float) -> None:
        with self._changed:
            self._seconds = seconds
            self.progress = self._clock()
            self._changed.notify()
        if not self._thread.is_alive():
            self._over = False
            self._work()
        while self._thread.is_alive() and (left := self._seconds_left()) > 0:
            self._thread.join(left)
        with self._changed:
            self._over = True
            self.lost += self.held
            self.held = 0

    def _seconds_left(self) -> float:
        """Return how many seconds are left in which the store may accept nothing."""
        if self._seconds is None:
            return inf
        return self.progress + self._seconds - self._clock()

    def _work(self) -> None:
        while (taken := self._take()) is not None:
            chunk, size = taken
            stored = self._upload(chunk)
            with self._changed:
                if self._over:
                    return  # `close` has counted this chunk as dropped.
                self.held -= size
                if stored:
                    self.progress = self._clock()
                else:
                    self.lost += size

    def _take(self) -> tuple[bytes, int] | None:
        with self._changed:
            while not self._waiting:
                if self._seconds is not None:
                    return None
                self._changed.wait()
            chunk, size = self._waiting.popleft()
            missing, self._missing = self._missing, 0
        if not isinstance(chunk, bytes):
            with chunk:
                chunk.seek(0)
                chunk = chunk.read()
        if missing:
            note = f"\n[kinetic] {missing} bytes of the log are missing here.\n".encode()
            chunk = note + chunk
        return chunk, size

    def _upload(self, chunk: bytes) -> bool:
        """Write the next object, with retries; return whether it was written."""
        backoff = Backoff(0.1, 5.0, jitter=0)
        while True:
            try:
                # Not create-only: no other process writes this attempt's log, and this may be a retry.
                self._store.write(self._name_of(self._sequence), chunk)
            except (KineticError, OSError) as error:
                self.error = str(error)
                if isinstance(error, GONE) or not self._wait_to_retry(backoff.next()):
                    return False
            else:
                self.error = None
                self._sequence += 1
                return True

    def _wait_to_retry(self, seconds: float) -> bool:
        """Wait before a retry; return whether there is time for one."""
        until = self._clock() + seconds
        with self._changed:
            # Each new chunk notifies this condition, so the wait may return early: hence the loop.
            while (left := until - self._clock()) > 0:
                if left > self._seconds_left():
                    return False
                self._changed.wait(left)
        return True
