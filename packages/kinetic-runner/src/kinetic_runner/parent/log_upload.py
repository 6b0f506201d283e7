"""Upload a host's log to the store as it is written, in numbered chunks."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from math import inf
from pathlib import Path
from time import monotonic
from typing import IO, Final

from kinetic_payload.backoff import Backoff
from kinetic_payload.errors import KineticError
from kinetic_payload.layout import STDERR_MARK
from kinetic_payload.stores.store import Store
from kinetic_runner.store_retries import GONE

CHUNK_SIZE: Final = 4 * 1024 * 1024
CHUNK_SECONDS: Final = 5.0
_IN_MEMORY: Final = 16 * 1024 * 1024
_ON_DISK: Final = 256 * 1024 * 1024
_STALL_SECONDS: Final = 10.0
"""Seconds without any progress of the store after which output is no longer held back."""


@dataclass
class LogUploader:
    """Accepts output at any speed; a thread uploads it.

    Output that is not uploaded yet waits in memory, then on disk. If that is not enough, `full` is True as
    long as the store makes progress, and the caller holds the output back. If the store makes no progress,
    the oldest waiting chunks are dropped, because the end of a log matters most. A line in the log marks the
    gap.
    """

    store: Store
    name_of: Callable[[int], str]
    _: KW_ONLY
    spool: Path | None = None
    chunk_size: int = CHUNK_SIZE
    chunk_seconds: float = CHUNK_SECONDS
    in_memory: int = _IN_MEMORY
    on_disk: int = _ON_DISK
    stall_seconds: float = _STALL_SECONDS
    clock: Callable[[], float] = monotonic

    def __post_init__(self) -> None:
        self.error: str | None = None
        """The error of the last chunk that could not be stored; None once a chunk is stored again."""
        self.lost = 0
        """How many bytes were dropped."""
        self._buffer = bytearray()
        self._begun = 0.0
        self._held = 0
        self._missing = 0
        self._progress = self.clock()
        self._sequence = 0
        self._waiting: deque[tuple[bytes | IO[bytes], int]] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closing: float | None = None
        """The seconds for which the store may accept nothing, once the log is to be closed."""
        self._over = False

    @property
    def full(self) -> bool:
        """Whether output should be held back for a moment."""
        return self._held + self.chunk_size > self.on_disk and not self._stalled

    @property
    def _stalled(self) -> bool:
        return self.clock() - self._progress >= self.stall_seconds

    @property
    def due_in(self) -> float | None:
        """Seconds until `send_due` has something to do."""
        if not self._buffer:
            return None
        return max(0.0, self._begun + self.chunk_seconds - self.clock())

    def append(self, data: bytes) -> None:
        """Add the next piece of output."""
        if not self._buffer:
            self._begun = self.clock()
        self._buffer += data
        while len(self._buffer) >= self.chunk_size:
            self._send(self.chunk_size)

    def send_due(self) -> None:
        """Upload the buffered output if it has waited long enough."""
        if self.due_in == 0.0:
            self._send(len(self._buffer))

    def close(self, seconds: float) -> None:
        """Upload the rest; drop it once the store accepts nothing for *seconds*.

        `lost` and `error` show whether output was dropped. Output that is appended later needs another `close`.
        """
        if self._buffer:
            self._send(len(self._buffer), in_thread=False)
        with self._changed:
            self._closing = seconds
            self._progress = self.clock()
            self._changed.notify()
        thread = self._thread
        if thread is None or not thread.is_alive():
            self._over = False
            self._work()
        else:
            while thread.is_alive() and (left := self._seconds_left()) > 0:
                thread.join(left)
        with self._changed:
            self._over = True
            self.lost += self._held
            self._held = 0

    def _send(self, size: int, *, in_thread: bool = True) -> None:
        with self._changed:
            while self._waiting and self._stalled and self._held + size > self.on_disk:
                oldest, dropped = self._waiting.popleft()
                if not isinstance(oldest, bytes):
                    oldest.close()
                self._held -= dropped
                self.lost += dropped
                self._missing += dropped
        data = bytes(self._buffer[:size])
        del self._buffer[:size]
        self._begun = self.clock()
        chunk = self._spill(data) if self._held + size > self.in_memory else data
        with self._changed:
            if not self._held:
                self._progress = self.clock()
            self._waiting.append((chunk, size))
            self._held += size
            self._changed.notify()
        if in_thread and (self._thread is None or not self._thread.is_alive()):
            self._over = False
            self._thread = threading.Thread(target=self._work, name="log-upload", daemon=True)
            self._thread.start()

    def _spill(self, chunk: bytes) -> bytes | IO[bytes]:
        import tempfile

        try:
            # One file for each chunk, without a name: the system frees its space when it is closed.
            file = tempfile.TemporaryFile(dir=self.spool)  # noqa: SIM115
        except OSError:
            return chunk
        try:
            file.write(chunk)
            file.flush()
        except OSError:
            file.close()
            return chunk
        return file

    def _seconds_left(self) -> float:
        """Return how many seconds are left in which the store may accept nothing."""
        if self._closing is None:
            return inf
        return self._progress + self._closing - self.clock()

    def _work(self) -> None:
        while (taken := self._take()) is not None:
            chunk, size = taken
            stored = self._upload(chunk)
            with self._changed:
                if self._over:
                    return  # `close` has counted this chunk as dropped.
                self._held -= size
                if stored:
                    self._progress = self.clock()
                else:
                    self.lost += size

    def _take(self) -> tuple[bytes, int] | None:
        with self._changed:
            while not self._waiting:
                if self._closing is not None:
                    return None
                self._changed.wait()
            chunk, size = self._waiting.popleft()
            missing, self._missing = self._missing, 0
        if not isinstance(chunk, bytes):
            with chunk:
                chunk.seek(0)
                chunk = chunk.read()
        if missing:
            note = (
                f"\n{STDERR_MARK}[kinetic] {missing} bytes of the log are missing here.\n".encode()
            )
            chunk = note + chunk
        return chunk, size

    def _upload(self, chunk: bytes) -> bool:
        """Write the next object, with retries; return whether it was written."""
        backoff = Backoff(0.1, 5.0, jitter=0)
        while True:
            try:
                # Not create-only: no other process writes this attempt's log, and this may be a retry.
                self.store.write(self.name_of(self._sequence), chunk)
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
        until = self.clock() + seconds
        with self._changed:
            # Each new chunk notifies this condition, so the wait may return early: hence the loop.
            while (left := until - self.clock()) > 0:
                if left > self._seconds_left():
                    return False
                self._changed.wait(left)
        return True
