"""Locks between the processes that share the tests."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(folder: Path, name: str, *, shared: bool = False) -> Iterator[None]:
    """Hold a lock, alone or with others who share it; those who share it do not overtake who waits."""
    with (folder / f"{name}.turn").open("w") as turn, (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(turn, fcntl.LOCK_EX)
        fcntl.flock(lock, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        fcntl.flock(turn, fcntl.LOCK_UN)
        yield
