"""How far a piece of work has come: bytes, rate and time left, told by whoever moves bytes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import pairwise
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
        """All of it in words: `uploading data: 120.0 MB of 1.0 GB, 95.0 MB/s, 9s left`."""
        done, total, seconds = self.done, self.total, self.seconds
        amount = size_text(done) if total is None else f"{size_text(done)} of {size_text(total)}"
        words = [amount]
        if seconds > 0 and done > 0:
            words.append(f"{size_text(done / seconds)}/s")
            if total is not None and done < total:
                left = round((total - done) * seconds / done)
                words.append(f"{duration_text(max(1, left))} left")
        return f"{self.doing}: {', '.join(words)}"

    @property
    def summary(self) -> str:
        """What to say when it is over: `uploading data: 1.0 GB in 11s, 95.0 MB/s`."""
        seconds = self.seconds
        rate = f", {size_text(self.done / seconds)}/s" if seconds > 0 and self.done else ""
        return (
            f"{self.doing}: {size_text(self.done)} in {duration_text(max(1, round(seconds)))}{rate}"
        )


_DECIMAL: Final = ("B", "kB", "MB", "GB", "TB")
_BINARY: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_TIMES: Final = (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1))


def size_text(size: float, *, binary: bool = False) -> str:
    """Return *size*, in bytes, as `120.0 MB`; *binary*, for memory, as `2.0 GiB`."""
    base, units = (1024, _BINARY) if binary else (1000, _DECIMAL)
    unit = 0
    while size >= base - 0.05 and unit < len(units) - 1:
        size, unit = size / base, unit + 1
    return f"{size:.0f} {units[0]}" if unit == 0 else f"{size:.1f} {units[unit]}"


def duration_text(seconds: float, *, coarse: bool = False) -> str:
    """Return *seconds* as `7s`, `3m 20s`, `2h 05m` or `1d 02h`; *coarse* as `119s`, `5m`, `26h` or `12d`."""
    whole = int(seconds)
    if coarse:
        unit, size = next((one for one in _TIMES if whole >= 2 * one[1]), _TIMES[-1])
        return f"{whole // size}{unit}"
    for (unit, size), (next_unit, next_size) in pairwise(_TIMES):
        if whole >= size:
            return f"{whole // size}{unit} {whole % size // next_size:02d}{next_unit}"
    return f"{whole}s"
