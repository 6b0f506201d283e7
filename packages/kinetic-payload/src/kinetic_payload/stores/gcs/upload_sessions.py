"""Unfinished uploads, remembered in a folder so that another process can go on with them.

One small file for each, locked while somebody works on it. Whoever holds the address of an upload may
write to it, so only its user can read these files.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from kinetic_payload.files.locks import try_lock
from kinetic_payload.files.private import make_folder, open_private, others_may_write

MAX_AGE: Final = 7 * 24 * 3600.0
"""Seconds; after a week the service forgets them, too."""

_open_names: set[str] = set()
"""Names of files: a folder's path may be spelled in several ways."""
_guard = threading.Lock()


def _after_fork() -> None:
    # Locks stay with the parent.
    global _guard
    _guard = threading.Lock()
    _open_names.clear()


os.register_at_fork(after_in_child=_after_fork)


@dataclass(frozen=True)
class Session:
    """An upload that was begun."""

    url: str
    nonce: str
    """In the metadata of what it will write."""


class SessionFile:
    """The place of one upload's session; ours until the end of the block."""

    def __init__(self, fd: int, path: Path) -> None:
        self._fd = fd
        self._path = path

    @property
    def session(self) -> Session | None:
        """What was begun, by us or somebody before us."""
        try:
            return Session(**json.loads(os.pread(self._fd, 1 << 16, 0)))
        except (ValueError, TypeError):
            return None

    def save(self, session: Session | None) -> None:
        """Note what was begun; None: what was begun is over."""
        with suppress(OSError):  # A full disk: the upload itself may still do.
            os.ftruncate(self._fd, 0)
            if session is not None:
                os.pwrite(self._fd, json.dumps(asdict(session)).encode(), 0)

    def close(self) -> None:
        """Close it, and remove it if nothing was begun."""
        if not os.fstat(self._fd).st_size:
            self.remove()
        os.close(self._fd)
        _open_names.discard(self._path.name)

    def remove(self) -> None:
        """It is done, or will never be."""
        self._path.unlink(missing_ok=True)


@contextmanager
def session_file(folder: Path | None, *key: Any) -> Iterator[SessionFile | None]:
    """Hold the place of the upload that *key* tells from all others.

    None where nothing is to be remembered, or somebody else works on the same upload.
    """
    file = None if folder is None else _open(folder, json.dumps(key))
    try:
        yield file
    finally:
        if file is not None:
            file.close()


def _open(folder: Path, key: str) -> SessionFile | None:
    path = folder / f"{hashlib.sha256(key.encode()).hexdigest()[:40]}.json"
    with _guard:
        if path.name in _open_names:
            return None
        _open_names.add(path.name)
    try:
        make_folder(folder)
        _collect(folder)
        fd = open_private(path, os.O_RDWR | os.O_CREAT)
    except OSError:
        # Nothing can be remembered here; the upload itself may still do.
        _open_names.discard(path.name)
        return None
    # One that was forgotten between these calls has no name any more. Where another user may have written
    # it, it may say to upload elsewhere.
    if try_lock(fd) and os.fstat(fd).st_nlink and not others_may_write(os.fstat(fd)):
        return SessionFile(fd, path)
    os.close(fd)
    _open_names.discard(path.name)
    return None


def _collect(folder: Path) -> None:
    """Remove what is too old to be gone on with."""
    for path in folder.glob("*.json"):
        if path.name in _open_names:
            continue
        with suppress(OSError):
            if time.time() - path.stat().st_mtime < MAX_AGE:
                continue
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                if try_lock(fd):
                    path.unlink(missing_ok=True)
            finally:
                os.close(fd)
