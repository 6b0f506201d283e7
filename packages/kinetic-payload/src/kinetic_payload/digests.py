"""SHA-256 of bytes, files and trees."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable
from copy import copy
from operator import attrgetter
from pathlib import Path
from typing import Final, Literal, NamedTuple

CHUNK: Final = 1 << 20

EntryKind = Literal["file", "dir", "link"]


class TreeEntry(NamedTuple):
    """One path of a tree, as it is shipped: without times and owners."""

    path: str
    """Relative to the tree's root, `/`-separated; bytes that are not UTF-8 as surrogate escapes."""
    kind: EntryKind
    mode: int = 0o755
    """Permission bits; 0o777 of a link."""
    size: int = 0
    digest: str = ""
    """Of a file, as `file_digest` returns it."""
    target: str = ""
    """Of a link, relative."""


class FileHasher:
    """The digest of one file, updated piece by piece: SHA-256 of its relative path, NUL, contents."""

    def __init__(self, relpath: str) -> None:
        self._use(hashlib.sha256(encoded(relpath) + b"\0"))

    def _use(self, sha: hashlib._Hash) -> None:
        self._sha = sha
        self.update = sha.update
        self.hexdigest = sha.hexdigest


class FileCheck(FileHasher):
    """Compares the bytes of an upload, which it receives in order, with the digest of a file.

    `finish` raises *otherwise* if they do not match *entry*.
    """

    def __init__(self, entry: TreeEntry, otherwise: Exception) -> None:
        super().__init__(entry.path)
        self._digest = entry.digest
        self._otherwise = otherwise

    def copy(self) -> FileCheck:
        """Return a check that has received the same bytes."""
        other = copy(self)
        other._use(self._sha.copy())  # noqa: SLF001 - an instance of this class
        return other

    def finish(self) -> None:
        """Raise unless the bytes match the entry."""
        if self.hexdigest() != self._digest:
            raise self._otherwise


def encoded(path: str) -> bytes:
    """Return *path* as the bytes for digests and archives, which are the same on every system."""
    return path.encode("utf-8", "surrogateescape")


def file_digest(path: Path | str, relpath: str) -> str:
    """Return the digest of the file *path*, which has the path *relpath* in its tree."""
    hasher = FileHasher(relpath)
    with open(open_regular(path), "rb", buffering=0) as stream:
        while data := stream.read(CHUNK):
            hasher.update(data)
    return hasher.hexdigest()


def open_regular(path: Path | str) -> int:
    """Open a regular file for reading and return its descriptor; do not hang on a FIFO.

    Raises:
        OSError: It cannot be opened, or is not a regular file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(None, "not a regular file", os.fspath(path))
    return descriptor


def tree_digest(entries: Iterable[TreeEntry]) -> str:
    """Return the digest of a tree: sorted paths, kinds, modes, files' sizes and digests, link targets.

    It depends on nothing else, so it is known before an archive is written, and client and runner agree on it.
    It includes the sizes, so an archive with this digest cannot unpack to more bytes.
    """
    sha = hashlib.sha256(b"kinetic-tree 2\0")
    for path, kind, mode, size, digest, target in sorted(entries, key=attrgetter("path")):
        # No path, digest or target holds a NUL, so the fields cannot run into each other.
        shown = size if kind == "file" else ""
        sha.update(encoded(f"{kind}\0{mode:o}\0{path}\0{shown}\0{digest}\0{target}\0"))
    return sha.hexdigest()
