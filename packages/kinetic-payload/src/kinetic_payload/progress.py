"""Progress of work on bytes: amount, rate and time left, as text."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import pairwise
from time import monotonic
from typing import Final

Advance = Callable[[int], None]
"""Count bytes that were just done, from any thread. Negative for bytes that have to be done again."""


TrackProgress = Callable[[str, int | None], AbstractContextManager[Advance]]
"""Show the progress of work such as `uploading data`, of so many bytes if that is known, while a `with` block runs."""


@contextmanager
def silent(doing: str, total: int | None) -> Iterator[Advance]:  # noqa: ARG001 - a `TrackProgress`
    """Show nothing."""
    yield lambda _: None


class Scaled:
    """Count the bytes of an archive that is being transferred as bytes of its contents."""

    def __init__(self, advance: Advance, content: int) -> None:
        self.whole = 0
        """The archive's size, set before the first byte is counted."""
        self._advance = advance
        self._content = content
        self._moved = 0
        self._counted = 0

    def __call__(self, size: int) -> None:
        """Count *size* bytes of the archive."""
        self._moved += size
        now = self._content * self._moved // max(self.whole, 1)
        self._advance(now - self._counted)
        self._counted = now


class Progress:
    """The progress of one piece of work."""

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
        """The progress in words: `uploading data: 120.0 MB of 1.0 GB, 95.0 MB/s, 9s left`."""
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
        """The result in words, when the work is done: `uploading data: 1.0 GB in 11s, 95.0 MB/s`."""
        seconds = self.seconds
        rate = f", {size_text(self.done / seconds)}/s" if seconds > 0 and self.done else ""
        return (
            f"{self.doing}: {size_text(self.done)} in {duration_text(max(1, round(seconds)))}{rate}"
        )


_DECIMAL: Final = ("B", "kB", "MB", "GB", "TB")
_BINARY: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_TIMES: Final = (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1))


def size_text(size: float, *, binary: bool = False) -> str:
    """Return *size*, in bytes, as `120.0 MB`; *binary*, for memory, as `2 GiB` or `1.5 GiB`."""
    base, units = (1024, _BINARY) if binary else (1000, _DECIMAL)
    unit = 0
    while size >= base - 0.05 and unit < len(units) - 1:
        size, unit = size / base, unit + 1
    # A limit of memory is printed as it was requested; a size that changes keeps one decimal.
    text = f"{size:.4g}" if binary else f"{size:.1f}" if unit else f"{size:.0f}"
    return f"{text} {units[unit]}"


def duration_text(seconds: float, *, coarse: bool = False) -> str:
    """Return *seconds* as `7s`, `3m 20s`, `2h 05m` or `1d 02h`; *coarse* as `119s`, `5m`, `26h` or `12d`."""
    whole = int(seconds)
    if coarse:
        unit, size = next((item for item in _TIMES if whole >= 2 * item[1]), _TIMES[-1])
        return f"{whole // size}{unit}"
    for (unit, size), (next_unit, next_size) in pairwise(_TIMES):
        if whole >= size:
            return f"{whole // size}{unit} {whole % size // next_size:02d}{next_unit}"
    return f"{whole}s"
