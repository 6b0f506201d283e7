"""The durable log: a host's output as chunks in the store, in order, whatever the store is doing."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from math import inf
from pathlib import Path
from time import monotonic
from typing import IO, Final

from kinetic_payload.errors import KineticError
from kinetic_payload.stores.store import Store
from kinetic_runner.persistence import GONE

CHUNK_SIZE: Final = 4 * 1024 * 1024
CHUNK_SECONDS: Final = 5.0
_IN_MEMORY: Final = 16 * 1024 * 1024
_ON_DISK: Final = 256 * 1024 * 1024
_PATIENCE: Final = 10.0
"""Seconds without any progress of the store after which output is no longer held back."""


class Journal:
    """Takes output at the speed it comes; a thread carries it to the store.

    What the store does not take in time waits in memory, then on disk, then holds the output back
    for as long as the store makes progress. If it makes none, the oldest waiting chunks are given
    up, and the log says where: its end is worth most.
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
        patience: float = _PATIENCE,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._store = store
        self._name_of = name_of
        self._spool = spool
        self._chunk_size = chunk_size
        self._chunk_seconds = chunk_seconds
        self._in_memory = in_memory
        self._on_disk = on_disk
        self._patience = patience
        self._clock = clock
        self._buffer = bytearray()
        self._begun = 0.0
        self._writer: _Writer | None = None

    @property
    def trouble(self) -> str | None:
        """What the store said when it last refused a chunk; None once it takes chunks again."""
        return self._writer.trouble if self._writer is not None else None

    @property
    def lost(self) -> int:
        """Bytes that were given up."""
        return self._writer.lost if self._writer is not None else 0

    @property
    def full(self) -> bool:
        """Whether output should be held back for a moment."""
        writer = self._writer
        return (
            writer is not None
            and writer.held + self._chunk_size > self._on_disk
            and self._clock() - writer.progress < self._patience
        )

    @property
    def due_in(self) -> float | None:
        """Seconds until `tick` has something to do."""
        if not self._buffer:
            return None
        return max(0.0, self._begun + self._chunk_seconds - self._clock())

    def append(self, data: bytes) -> None:
        """Take the next piece of output."""
        if not self._buffer:
            self._begun = self._clock()
        self._buffer += data
        while len(self._buffer) >= self._chunk_size:
            self._seal(self._chunk_size)

    def tick(self) -> None:
        """Send off what has waited long enough."""
        if self.due_in == 0.0:
            self._seal(len(self._buffer))

    def close(self, seconds: float) -> None:
        """Store the rest; give up what the store takes nothing of for *seconds*.

        `lost` and `trouble` say so then. What is appended later needs another `close`.
        """
        if self._buffer:
            self._seal(len(self._buffer), in_thread=self._writer is not None)
        if self._writer is not None:
            self._writer.close(seconds)

    def _seal(self, size: int, *, in_thread: bool = True) -> None:
        writer = self._writer
        if writer is None:
            writer = self._writer = _Writer(
                self._store, self._name_of, self._clock, start=in_thread
            )
        spill = writer.held + size > self._in_memory
        stuck = self._clock() - writer.progress >= self._patience
        while stuck and writer.held + size > self._on_disk and writer.give_up_oldest():
            continue
        chunk = bytes(self._buffer[:size])
        del self._buffer[:size]
        writer.put(self._spilled(chunk) if spill else chunk, size)
        self._begun = self._clock()

    def _spilled(self, chunk: bytes) -> bytes | IO[bytes]:
        import tempfile

        try:
            # One file a chunk, without a name: the system gives the room back by itself.
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


class _Writer:
    """The thread between memory and store; without one, `close` does its work."""

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
        self.trouble: str | None = None
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
        self._thread = threading.Thread(target=self._work, name="journal", daemon=True)
        if start:
            self._thread.start()

    def put(self, chunk: bytes | IO[bytes], size: int) -> None:
        with self._changed:
            if not self.held:
                self.progress = self._clock()
            self._waiting.append((chunk, size))
            self.held += size
            self._changed.notify()

    def give_up_oldest(self) -> bool:
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
        while self._thread.is_alive() and (left := self._hope()) > 0:
            self._thread.join(left)
        with self._changed:
            self._over = True
            self.lost += self.held
            self.held = 0

    def _hope(self) -> float:
        """Return for how many seconds more the store may take nothing."""
        if self._seconds is None:
            return inf
        return self.progress + self._seconds - self._clock()

    def _work(self) -> None:
        while (taken := self._take()) is not None:
            chunk, size = taken
            stored = self._deliver(chunk)
            with self._changed:
                if self._over:
                    return  # `close` gave it up, and counted it.
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

    def _deliver(self, chunk: bytes) -> bool:
        """Write the next object; try for as long as there is hope. Return whether it was written."""
        pause = 0.1
        while True:
            try:
                # Not create-only: the attempt is ours alone, and this may be a second try.
                self._store.write(self._name_of(self._sequence), chunk)
            except (KineticError, OSError) as error:
                self.trouble = str(error)
                if isinstance(error, GONE) or not self._rest(pause):
                    return False
                pause = min(pause * 2, 5.0)
            else:
                self.trouble = None
                self._sequence += 1
                return True

    def _rest(self, seconds: float) -> bool:
        """Wait before another try; return whether there is time for one."""
        until = self._clock() + seconds
        with self._changed:
            # Notified by every chunk that comes, so it may return early: hence the loop.
            while (left := until - self._clock()) > 0:
                if left > self._hope():
                    return False
                self._changed.wait(left)
        return True
