"""Extraction of archives and single files into one tree, with names, sizes, links and digests checked.

Archives are not trusted. Files may be added in any order and from several threads; links and the modes of
folders are set last, so that nothing is ever written through a link.
"""

from __future__ import annotations

import errno
import os
import threading
import zlib
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import BinaryIO, Final

from kinetic_payload.archives.safe_paths import link_goal, unsafe_path
from kinetic_payload.archives.zip_format import DEFLATED, Member, data_offset, read_directory
from kinetic_payload.digests import CHUNK, FileHasher, TreeEntry, tree_digest
from kinetic_payload.errors import DataError, IntegrityError, UnsafeArchiveError

MAX_SIZE: Final = 1 << 40
MAX_ENTRIES: Final = 5_000_000
_MAX_TARGET: Final = 16 * 1024
_INVALID_NAME: Final = frozenset({errno.ENAMETOOLONG, errno.EILSEQ})


def extract_archive(
    source: BinaryIO | Path,
    dest: Path,
    *,
    expected_digest: str | None = None,
    max_size: int = MAX_SIZE,
    max_entries: int = MAX_ENTRIES,
) -> str:
    """Extract *source* into *dest*, a folder that is empty or absent, and return the tree's digest.

    With *expected_digest*, nothing is written unless the archive's directory lists that tree, and every
    file is verified against its digest while it is written. After an error *dest* may contain part of
    the tree.

    Raises:
        UnsafeArchiveError: An entry would write outside of *dest*, or more than it declares.
        IntegrityError: The archive is damaged, or is not the tree that was expected.
    """
    with source.open("rb") if isinstance(source, Path) else nullcontext(source) as opened:
        contents = Contents(opened, max_size=max_size, max_entries=max_entries)
        checked_links(contents.entries)
        digest = expected_tree(contents.entries, expected_digest)
        extraction = Extraction(dest)
        extraction.add(contents)
    extraction.finish()
    return digest


class Contents:
    """The contents that an archive lists, with names, sizes and links checked. Nothing is written.

    Raises:
        UnsafeArchiveError: An entry would write outside of the target folder, or more than is allowed.
        IntegrityError: The archive is damaged.
    """

    def __init__(
        self, source: BinaryIO, *, max_size: int = MAX_SIZE, max_entries: int = MAX_ENTRIES
    ) -> None:
        self.source = source
        self.members = list(read_directory(source, max_entries=max_entries))
        total = sum(member.size for member in self.members)
        if total > max_size:
            largest = max(self.members, key=lambda member: member.size)
            too_much = f"the archive unpacks to {total} bytes; {max_size} are allowed"
            raise _unsafe(largest.path, too_much)
        end = 0
        for member in sorted(self.members, key=lambda member: member.offset):
            if member.offset < end:
                raise _unsafe(member.path, "it shares its bytes with another entry")
            end = member.offset + 30 + member.compressed
        self.entries: list[TreeEntry] = []
        for m in self.members:
            if why := unsafe_path(m.path):
                raise _unsafe(m.path, why)
            target = b""
            if m.kind == "link":
                if m.size > _MAX_TARGET:
                    raise _unsafe(m.path, f"the target of the link has {m.size} bytes")
                target = b"".join(_contents(source, m))
            entry = TreeEntry(m.path, m.kind, m.mode, m.size, m.digest)
            self.entries.append(entry._replace(target=target.decode("utf-8", "surrogateescape")))


class Extraction:
    """Extraction of a tree into the folder *dest*, which is empty or absent, from any thread.

    After an error *dest* may contain part of the tree.
    """

    def __init__(self, dest: Path) -> None:
        self._dest = dest
        self._top = ""
        self._lock = threading.Lock()
        self._entries: dict[str, TreeEntry] = {}
        self._folders: set[str] = set()
        """Folders that were created; the contents of a folder may be added before its own entry."""

    def add(self, contents: Contents) -> None:
        """Write the files and folders of an archive.

        Raises:
            UnsafeArchiveError: One of them exists already, or is inside something that is not a folder.
            IntegrityError: A file does not match its digest.
        """
        self._register(contents.entries)
        for member in sorted(contents.members, key=lambda member: member.offset):
            if member.kind == "file":
                _write_file(contents.source, f"{self._top}/{member.path}", member)

    def place(self, entry: TreeEntry) -> Path:
        """Create an empty file for *entry* and return its path.

        Raises:
            UnsafeArchiveError: The path is unsafe, or conflicts with another entry.
        """
        if why := unsafe_path(entry.path):
            raise _unsafe(entry.path, why)
        self._register([entry])
        path = f"{self._top}/{entry.path}"
        os.close(_new_file(path, entry.path))
        return Path(path)

    @property
    def entries(self) -> Collection[TreeEntry]:
        """Everything that was added."""
        return self._entries.values()

    def finish(self) -> None:
        """Create the links and set the modes of folders.

        Raises:
            UnsafeArchiveError: A link leads out of the tree.
        """
        links = checked_links(self.entries)
        self._create_dest()
        for path, target in links.items():
            with _translated(path):
                Path(self._top, path).symlink_to(target)
        for folder in sorted(self._folders, reverse=True):
            known = self._entries.get(folder)
            # The owner keeps all rights, whatever the archive says: the folder must be removable.
            Path(self._top, folder).chmod((known.mode if known else 0o755) | 0o700)

    def _create_dest(self) -> None:
        if self._top:
            return
        self._dest.mkdir(parents=True, exist_ok=True)
        if any(self._dest.iterdir()):
            raise UnsafeArchiveError(f"{self._dest} is not empty, so nothing is extracted into it.")
        self._top = os.path.realpath(self._dest)

    def _register(self, entries: list[TreeEntry]) -> None:
        """Register *entries* unless they conflict with each other or with earlier ones; create folders."""
        with self._lock:
            for entry in entries:
                if entry.path in self._entries:
                    raise _unsafe(entry.path, "there are two entries of this path")
                self._entries[entry.path] = entry
            wanted = _folders_of(entries)
            for folder in wanted:
                known = self._entries.get(folder)
                if known is not None and known.kind != "dir":
                    raise _in_the_way(folder)
            for entry in entries:
                if entry.kind != "dir" and entry.path in self._folders:
                    raise _in_the_way(entry.path)
            self._create_dest()
            for folder in sorted(wanted - self._folders):
                with _translated(folder):
                    # Writable until its contents are complete.
                    Path(self._top, folder).mkdir(mode=0o700)
            self._folders |= wanted


def checked_links(entries: Iterable[TreeEntry]) -> dict[str, str]:
    """Return the targets of all links of a tree; verify that none of the links leads out of it.

    Raises:
        UnsafeArchiveError: A link leads out of the tree.
    """
    links = {entry.path: entry.target for entry in entries if entry.kind == "link"}
    for path, target in links.items():
        if link_goal(path, links) is None:
            raise _unsafe(path, f"the link leads out of the archive, to {target!r}")
    return links


def expected_tree(entries: Iterable[TreeEntry], expected: str | None) -> str:
    """Return the digest of a tree; verify that it is *expected*, unless that is None.

    Raises:
        IntegrityError: The digest is another than *expected*.
    """
    digest = tree_digest(entries)
    if expected is not None and digest != expected:
        raise IntegrityError(
            f"The archive holds the tree {digest[:12]}…; expected {expected[:12]}…."
        )
    return digest


def _unsafe(path: str, why: str) -> UnsafeArchiveError:
    return UnsafeArchiveError(f"The archive's entry {path!r} is refused: {why}.")


def _in_the_way(path: str) -> UnsafeArchiveError:
    return _unsafe(path, "it is not a folder, but other entries are inside it")


def _damaged(member: Member) -> IntegrityError:
    return IntegrityError(f"The archive's entry {member.path!r} is damaged.")


def _folders_of(entries: Iterable[TreeEntry]) -> set[str]:
    """Return every folder that is one of the entries or contains one."""
    folders: set[str] = set()
    for entry in entries:
        folder = entry.path if entry.kind == "dir" else entry.path.rpartition("/")[0]
        while folder and folder not in folders:
            folders.add(folder)
            folder = folder.rpartition("/")[0]
    return folders


def _contents(source: BinaryIO, member: Member) -> Iterator[bytes]:
    """Yield the member's contents, never more than it declares."""
    source.seek(data_offset(source, member))
    pieces = _inflated if member.method == DEFLATED else _stored
    left = member.size
    for piece in pieces(source, member):
        left -= len(piece)
        if left < 0:
            raise _unsafe(member.path, "it unpacks to more bytes than it declares")
        yield piece
    if left:
        raise _damaged(member)


def _stored(source: BinaryIO, member: Member) -> Iterator[bytes]:
    left = member.compressed
    while left:
        data = source.read(min(left, CHUNK))
        if not data:
            raise IntegrityError(f"The archive ends within its entry {member.path!r}.")
        left -= len(data)
        yield data


def _inflated(source: BinaryIO, member: Member) -> Iterator[bytes]:
    inflater = zlib.decompressobj(-15)
    try:
        for data in _stored(source, member):
            while data and not inflater.eof:
                yield inflater.decompress(data, CHUNK)
                data = inflater.unconsumed_tail
    except zlib.error as error:
        raise _damaged(member) from error
    if not inflater.eof:
        raise _damaged(member)


@contextmanager
def _translated(path: str) -> Iterator[None]:
    """Translate errors of the file system about the name *path*."""
    try:
        yield
    except FileExistsError as error:
        # The names in the archive differ, but this file system ignores case.
        raise _unsafe(path, "the file system already has an entry of that name") from error
    except OSError as error:
        if error.errno not in _INVALID_NAME:
            raise
        raise DataError(
            f"The archive's entry {path[:200]!r} cannot be written: {error.strerror}.",
            hint="This file system does not allow some names that the system of the archive's origin allows.",
        ) from error


def _new_file(path: str, shown: str) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with _translated(shown):
        return os.open(path, flags, 0o600)


def _write_file(source: BinaryIO, path: str, member: Member) -> None:
    hasher = FileHasher(member.path)
    file = _new_file(path, member.path)
    try:
        for piece in _contents(source, member):
            hasher.update(piece)
            left = piece
            while left:
                left = left[os.write(file, left) :]
        if hasher.hexdigest() != member.digest:
            raise _damaged(member)
        # Only the nine permission bits are read from an archive, never set-user-id and the like.
        os.fchmod(file, member.mode)
    finally:
        os.close(file)
