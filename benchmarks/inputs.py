"""Large inputs: source code, and bytes that no compressor can shorten, in files of a given size."""

from __future__ import annotations

import os
import random
import sysconfig
from collections.abc import Callable
from pathlib import Path

MB = 1_000_000


def write_text(folder: Path, size: int, *, each: int) -> Path:
    """Write *size* bytes of source code in files of *each*, cut from the standard library's."""
    library = Path(sysconfig.get_paths()["stdlib"])
    sources = sorted(path for path in library.rglob("*.py") if "site-packages" not in path.parts)
    text = b"".join(path.read_bytes() for path in sources)
    chooser = random.Random(1)  # The same bytes every time.
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
