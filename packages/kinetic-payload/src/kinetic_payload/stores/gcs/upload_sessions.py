"""Sessions of unfinished uploads in a folder, so that another process can resume them.

Each has a small file, which is locked while a process uses it. Anyone who knows the address of a session may
write to it, so the files are private.
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
"""Seconds; after a week the sessions expire at the service, too."""

_open_names: set[str] = set()
"""Names of files; a folder may have several paths."""
_guard = threading.Lock()


def _after_fork() -> None:
    # The parent keeps its locks.
    global _guard
    _guard = threading.Lock()
    _open_names.clear()


os.register_at_fork(after_in_child=_after_fork)


@dataclass(frozen=True)
class Session:
    """A session at the service."""

    url: str
    nonce: str
    """It is stored in the metadata of the object that the session writes."""


class SessionFile:
    """The file of one upload's session, locked until it is closed."""

    def __init__(self, fd: int, path: Path) -> None:
        self._fd = fd
        self._path = path

    @property
    def session(self) -> Session | None:
        """The session, of this process or an earlier one."""
        try:
            return Session(**json.loads(os.pread(self._fd, 1 << 16, 0)))
        except (ValueError, TypeError):
            return None

    def save(self, session: Session | None) -> None:
        """Save the session, or that there is none any more."""
        with suppress(OSError):  # A full disk must not end the upload.
            os.ftruncate(self._fd, 0)
            if session is not None:
                os.pwrite(self._fd, json.dumps(asdict(session)).encode(), 0)

    def close(self) -> None:
        """Close the file; remove it if it holds no session."""
        if not os.fstat(self._fd).st_size:
            self.remove()
        os.close(self._fd)
        _open_names.discard(self._path.name)

    def remove(self) -> None:
        """Remove the file, after the upload has ended."""
        self._path.unlink(missing_ok=True)


@contextmanager
def session_file(folder: Path | None, *key: Any) -> Iterator[SessionFile | None]:
    """Open and lock the session file of the upload that *key* identifies.

    It is None if there is no folder, or if another process works on the same upload.
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
        # The upload works without a session file.
        _open_names.discard(path.name)
        return None
    # A file that was removed between these calls has no name any more. A file that another user may have
    # written could name another address to upload to.
    if try_lock(fd) and os.fstat(fd).st_nlink and not others_may_write(os.fstat(fd)):
        return SessionFile(fd, path)
    os.close(fd)
    _open_names.discard(path.name)
    return None


def _collect(folder: Path) -> None:
    """Remove files of expired sessions."""
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
