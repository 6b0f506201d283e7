"""How far a piece of work has come: bytes, rate and time left, told by whoever moves bytes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from time import monotonic
from typing import Final, Protocol

Advance = Callable[[int], None]
"""Told how many bytes were just done; may be called from any thread. Negative where bytes that were
counted have to be done again."""


class Reports(Protocol):
    """Shows how far work has come, to a person or in a log."""

    def __call__(self, doing: str, total: int | None) -> AbstractContextManager[Advance]:
        """Begin to report on work such as `uploading data`, of *total* bytes if that is known."""
        ...


@contextmanager
def silent(doing: str, total: int | None) -> Iterator[Advance]:  # noqa: ARG001 - the protocol's
    """Report nothing."""
    yield lambda _: None


class Scaled:
    """Counts the bytes of an archive on its way as those of what is in it."""

    def __init__(self, advance: Advance, content: int) -> None:
        self.whole = 0
        """The archive's size, set when it is known: before the first byte is counted."""
        self._advance = advance
        self._content = content
        self._moved = 0
        self._told = 0

    def __call__(self, size: int) -> None:
        """Count *size* bytes of the archive."""
        self._moved += size
        now = self._content * self._moved // max(self.whole, 1)
        self._advance(now - self._told)
        self._told = now


class Progress:
    """What is known of one piece of work now."""

    def __init__(
        self, doing: str, total: int | None, *, clock: Callable[[], float] = monotonic
    ) -> None:
        self.doing = doing
        self.total = total
        self.done = 0
        self._clock = clock
        self._began = clock()
        self._lock = threading.Lock()

    def advance(self, size: int) -> None:
        """Count *size* bytes as done."""
        with self._lock:
            self.done += size

    @property
    def seconds(self) -> float:
        """How long it has taken so far."""
        return self._clock() - self._began

    @property
    def text(self) -> str:
        """All of it in words: `uploading data: 120.0 MB of 1.0 GB, 95.0 MB/s, 9 s left`."""
        done, total, seconds = self.done, self.total, self.seconds
        amount = size_text(done) if total is None else f"{size_text(done)} of {size_text(total)}"
        words = [amount]
        if seconds > 0 and done > 0:
            words.append(f"{size_text(done / seconds)}/s")
            if total is not None and done < total:
                words.append(f"{seconds_text((total - done) * seconds / done)} left")
        return f"{self.doing}: {', '.join(words)}"

    @property
    def summary(self) -> str:
        """What to say when it is over: `uploading data: 1.0 GB in 11 s, 95.0 MB/s`."""
        seconds = self.seconds
        rate = f", {size_text(self.done / seconds)}/s" if seconds > 0 and self.done else ""
        return f"{self.doing}: {size_text(self.done)} in {seconds_text(seconds)}{rate}"


_UNITS: Final = ("B", "kB", "MB", "GB", "TB")


def size_text(size: float) -> str:
    """Return *size*, in bytes, as `120.0 MB`."""
    unit = 0
    while size >= 999.95 and unit < len(_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{size:.0f} {_UNITS[0]}" if unit == 0 else f"{size:.1f} {_UNITS[unit]}"


def seconds_text(seconds: float) -> str:
    """Return *seconds* as `9 s`, `3 min 20 s` or `2 h 05 min`."""
    whole = max(1, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole // 60 % 60:02d} min"
