"""Large inputs: text that compresses as source and logs do, bytes that do not, in files of a size."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

MB = 1_000_000


def write_text(folder: Path, size: int, *, each: int) -> Path:
    """Write *size* bytes of text in files of *each*; the same bytes every time."""
    words = [_word(random.Random(number)) for number in range(20_000)]
    chooser = random.Random(1)
    # Common words are common: the square of a random number prefers the first ones.
    count = len(words)
    text = " ".join(words[int(count * chooser.random() ** 2)] for _ in range(2 * MB)).encode()
    return _write(folder, size, each, lambda: _slice(text, each, chooser))


def write_random(folder: Path, size: int, *, each: int) -> Path:
    """Write *size* bytes that no compressor can shorten."""
    return _write(folder, size, each, lambda: os.urandom(each))


def _write(folder: Path, size: int, each: int, piece: Callable[[], bytes]) -> Path:
    for number in range(size // each):
        below = folder / f"{number // 100:03d}"
        below.mkdir(parents=True, exist_ok=True)
        (below / f"file-{number}.bin").write_bytes(piece())
    return folder


def _slice(text: bytes, length: int, chooser: random.Random) -> bytes:
    whole, rest = divmod(length, len(text))
    start = chooser.randrange(len(text) - rest)
    return text * whole + text[start : start + rest]


def _word(chooser: random.Random) -> str:
    letters = "etaoinshrdlucmfwypvbgkjqxz"
    return "".join(letters[int(26 * chooser.random() ** 2)] for _ in range(chooser.randint(2, 10)))
