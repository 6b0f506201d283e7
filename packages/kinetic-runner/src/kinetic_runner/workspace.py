"""The workspace of one host: the folder with payload, project and data of its attempt."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from kinetic_payload.errors import IntegrityError
from kinetic_payload.files.private import FULL_DISK, make_folder


class Workspace:
    """The paths below one folder, which only its user can read."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(os.path.abspath(root))  # noqa: PTH100 - `resolve` would change what the user sees
        self.payload = self.root / "payload.pkl"
        self.context = self.root / "context.zip"
        self.project = self.root / "project"
        self.environment = self.root / "environment"

    def make(self) -> None:
        """Make the folder, and an empty project in it."""
        make_folder(self.project)

    def data(self, key: str, name: str) -> Path:
        """Return the path for the data *key*; it ends in the last part of *name*, if there is one."""
        last = Path(name).name
        return self.root / "data" / key / (key if last in ("", "..") else last)

    def mount(self, key: str) -> Path:
        """Return the folder that is mounted at the private mount point of the data *key*."""
        return self.root / "mounts" / key

    def within_project(self, relative: str) -> Path:
        """Return the path of *relative* (POSIX, `""` is the root) in the extracted project.

        Raises:
            IntegrityError: *relative* leads out of the project.
        """
        path = Path(os.path.normpath(self.project / relative))
        if path != self.project and self.project not in path.parents:
            raise IntegrityError(f"The call names {relative!r}, which is outside its project.")
        return path


def import_path(current: Sequence[str], project: Iterable[Path]) -> list[str]:
    """Return `sys.path` with the *project*'s folders first, each once."""
    first = list(dict.fromkeys(str(path) for path in project))
    return first + [entry for entry in current if entry not in first]


_WORDS: Final = {
    errno.ENOSPC: "no space is left on the disk",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file is larger than the file system allows",
    errno.EROFS: "the file system is read-only",
    errno.EMFILE: "too many files are open",
    errno.ENAMETOOLONG: "the name is too long for the file system",
}


def disk_words(error: BaseException, root: Path) -> str | None:
    """Describe why the file system refused an operation; None if *error* has another cause."""
    if not isinstance(error, OSError) or error.errno not in _WORDS:
        return None
    words, where = _WORDS[error.errno], error.filename2 or error.filename
    if isinstance(where, str | bytes | os.PathLike):
        words += f": {os.fsdecode(where)}"
    if error.errno in FULL_DISK:
        while not root.exists() and root != root.parent:
            root = root.parent
        with suppress(OSError):
            disk, mib = os.statvfs(root), 1024 * 1024
            free, size = disk.f_bavail * disk.f_frsize // mib, disk.f_blocks * disk.f_frsize // mib
            words += f" ({free:,} MiB of {size:,} MiB are free on the disk of the job's workspace)"
    return words
