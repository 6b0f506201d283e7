"""Trees to archives and back: the one door to both, and extraction with everything checked.

An archive is a plain zip file. Its bytes depend on the compressor at hand, its tree digest does not.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from kinetic_payload.digests import CHUNK, FileHasher, TreeEntry, tree_digest
from kinetic_payload.errors import IntegrityError, UnsafeArchiveError
from kinetic_payload.zipformat import DEFLATED, Member, data_offset, read_directory

MAX_SIZE: Final = 1 << 40
MAX_ENTRIES: Final = 5_000_000
_MAX_TARGET: Final = 16 * 1024


def write_archive(stream: BinaryIO, root: Path, entries: Iterable[TreeEntry]) -> int:
    """Write the *entries* of the tree at *root* into *stream* and return the archive's size.

    The stream is only appended to. Contents are held against the digests of *entries*.

    Raises:
        PackagingError: A file is not what it was when its digest was taken; the message names it.
    """
    # Where functions run nothing is ever packed: the worker is spared the import.
    from kinetic_payload.packing import pack

    return pack(stream, root, entries)


def unsafe_path(path: str) -> str | None:
    """Say why nothing may be extracted under the name *path*, or None.

    A name is also read as Windows would: an archive is safe wherever it is opened.
    """
    if not path or "\0" in path:
        return "it is not a name"
    # Asked of every file of every submit, where a regular expression would be a third of the time.
    if path[0] in "/\\" or (path[1:2] == ":" and re.match(r"[A-Za-z]:[/\\]", path)):
        return "it is absolute"
    if ".." in path.replace("\\", "/").split("/"):
        return "it leads upwards"
    if not {"", "."}.isdisjoint(path.split("/")):
        return "it is not in its plain form"
    return None


def link_goal(path: str, links: dict[str, str]) -> str | None:
    """Return where in its tree the link *path* leads, or None if it can lead out of it.

    Args:
        links: The targets of all links of the tree, since a link may lead through others.

    A link that leads in a circle leads nowhere; the answer is then *path* itself.
    """
    if links[path][:1] in ("", "/") or "\0" in links[path]:
        return None
    here = path.split("/")[:-1]
    todo = links[path].split("/")[::-1]
    followed = 0
    while todo:
        part = todo.pop()
        if part == "..":
            if not here:
                return None
            here.pop()
        elif part not in ("", "."):
            target = links.get("/".join([*here, part]))
            if target is None:
                here.append(part)
                continue
            followed += 1
            if target.startswith("/"):
                return None
            if followed > 40:
                return path  # Systems give up here or earlier.
            todo.extend(target.split("/")[::-1])
    return "/".join(here)


def extract_archive(
    source: BinaryIO | Path,
    dest: Path,
    *,
    expected_digest: str | None = None,
    max_size: int = MAX_SIZE,
    max_entries: int = MAX_ENTRIES,
) -> str:
    """Extract *source* into *dest*, a folder that is empty or absent, and return the tree's digest.

    With *expected_digest* nothing is written unless the archive's directory promises that tree, and
    every file is held against its own digest while it is written. After an error *dest* may hold
    part of the tree.

    Raises:
        UnsafeArchiveError: An entry would write elsewhere, or more than it says.
        IntegrityError: The archive is damaged, or is not the tree that was expected.
    """
    if isinstance(source, Path):
        with source.open("rb") as opened:
            return extract_archive(
                opened,
                dest,
                expected_digest=expected_digest,
                max_size=max_size,
                max_entries=max_entries,
            )
    members = list(read_directory(source, max_entries=max_entries))
    _check_names(members)
    _check_sizes(members, max_size)
    links = {m.path: _target(source, m) for m in members if m.kind == "link"}
    for path in links:
        if link_goal(path, links) is None:
            raise _unsafe(path, f"the link leads out of the archive, to {links[path]!r}")
    digest = tree_digest(
        TreeEntry(m.path, m.kind, m.mode, m.size, m.digest, links.get(m.path, "")) for m in members
    )
    if expected_digest is not None and digest != expected_digest:
        raise IntegrityError(
            f"The archive holds tree {digest[:12]}…, and {expected_digest[:12]}… was expected."
        )
    _write_tree(source, dest, members, links)
    return digest


def _unsafe(path: str, why: str) -> UnsafeArchiveError:
    return UnsafeArchiveError(f"The archive's entry {path!r} is refused: {why}.")


def _check_names(members: list[Member]) -> None:
    kinds: dict[str, str] = {}
    for member in members:
        if why := unsafe_path(member.path):
            raise _unsafe(member.path, why)
        if member.path in kinds:
            raise _unsafe(member.path, "it is there twice")
        kinds[member.path] = member.kind
    for folder in _with_parents(members):
        if kinds.get(folder, "dir") != "dir":
            raise _unsafe(folder, "it is not a folder, and others lie in it")


def _check_sizes(members: list[Member], max_size: int) -> None:
    total = sum(member.size for member in members)
    if total > max_size:
        largest = max(members, key=lambda member: member.size)
        raise _unsafe(
            largest.path, f"the archive unpacks to {total} bytes and {max_size} are allowed"
        )
    end = 0
    for member in sorted(members, key=lambda member: member.offset):
        if member.offset < end:
            raise _unsafe(member.path, "it shares its bytes with another entry")
        end = member.offset + 30 + member.packed


def _target(source: BinaryIO, member: Member) -> str:
    if member.size > _MAX_TARGET:
        raise _unsafe(member.path, f"a link of {member.size} bytes")
    return b"".join(_contents(source, member)).decode("utf-8", "surrogateescape")


def _contents(source: BinaryIO, member: Member) -> Iterator[bytes]:
    """Yield the member's contents, never more than it declares."""
    source.seek(data_offset(source, member))
    pieces = _inflated if member.method == DEFLATED else _stored
    left = member.size
    for piece in pieces(source, member):
        left -= len(piece)
        if left < 0:
            raise _unsafe(member.path, "it unpacks to more than it declares")
        yield piece
    if left:
        raise _damaged(member)


def _stored(source: BinaryIO, member: Member) -> Iterator[bytes]:
    left = member.packed
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


def _damaged(member: Member) -> IntegrityError:
    return IntegrityError(f"The archive's entry {member.path!r} is damaged.")


def _write_tree(source: BinaryIO, dest: Path, members: list[Member], links: dict[str, str]) -> None:
    dest.mkdir(parents=True, exist_ok=True)
    if any(dest.iterdir()):
        raise UnsafeArchiveError(f"{dest} is not empty; nothing is extracted over what is there.")
    top = os.path.realpath(dest)
    modes = {member.path: member.mode for member in members if member.kind == "dir"}
    folders = sorted(_with_parents(members))
    for folder in folders:
        with _alone(folder):
            Path(top, folder).mkdir(mode=0o700)  # Writable until everything is in it.
    for member in sorted(members, key=lambda member: member.offset):
        if member.kind == "file":
            _write_file(source, f"{top}/{member.path}", member)
    # Only now, so that nothing is ever written through a link.
    for path, target in links.items():
        with _alone(path):
            Path(top, path).symlink_to(target)
    for folder in reversed(folders):
        Path(top, folder).chmod(modes.get(folder, 0o755))


@contextmanager
def _alone(path: str) -> Iterator[None]:
    try:
        yield
    except FileExistsError as error:
        # Names differ, and yet: a file system that does not tell upper from lower case.
        raise _unsafe(path, "the file system already has an entry of that name") from error


def _with_parents(members: list[Member]) -> set[str]:
    """Return every folder that the members are or lie in."""
    folders: set[str] = set()
    for member in members:
        folder = member.path if member.kind == "dir" else member.path.rpartition("/")[0]
        while folder and folder not in folders:
            folders.add(folder)
            folder = folder.rpartition("/")[0]
    return folders


def _write_file(source: BinaryIO, path: str, member: Member) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with _alone(member.path):
        file = os.open(path, flags, 0o600)
    try:
        hasher = FileHasher(member.path) if member.digest else None
        crc = 0
        for piece in _contents(source, member):
            if hasher is not None:
                hasher.update(piece)
            else:
                crc = zlib.crc32(piece, crc)
            while piece:
                piece = piece[os.write(file, piece) :]
        if hasher.hexdigest() != member.digest if hasher else crc != member.crc:
            raise _damaged(member)
        # Without set-user-id and the like: only these nine bits are ever read from an archive.
        os.fchmod(file, member.mode)
    finally:
        os.close(file)
