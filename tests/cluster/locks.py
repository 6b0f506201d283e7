"""Locks between the processes that share the tests."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(folder: Path, name: str, *, shared: bool = False, wait: bool = True) -> Iterator[bool]:
    """Hold a lock, alone or with others who share it; those who share it do not overtake who waits.

    Without *wait*, the value is False if somebody else holds it.
    """
    with (folder / f"{name}.turn").open("w") as turn, (folder / f"{name}.lock").open("w") as lock:
        kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        if not wait:
            try:
                fcntl.flock(lock, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield True
            return
        fcntl.flock(turn, fcntl.LOCK_EX)
        fcntl.flock(lock, kind)
        fcntl.flock(turn, fcntl.LOCK_UN)
        yield True
