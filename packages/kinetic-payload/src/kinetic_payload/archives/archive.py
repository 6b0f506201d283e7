"""Trees to archives and back: the one door to both.

An archive is a plain zip file. Its bytes depend on the compressor at hand, its tree digest does not.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from kinetic_payload.archives.extract import (
    MAX_ENTRIES,
    MAX_SIZE,
    Contents,
    Extraction,
    checked_links,
    expected_tree,
    link_goal,
    unsafe_path,
)
from kinetic_payload.digests import TreeEntry

__all__ = ["extract_archive", "link_goal", "unsafe_path", "write_archive"]


def write_archive(stream: BinaryIO, root: Path, entries: Iterable[TreeEntry]) -> int:
    """Write the *entries* of the tree at *root* into *stream* and return the archive's size.

    The stream is only appended to. Contents are held against the digests of *entries*.

    Raises:
        PackagingError: A file is not what it was when its digest was taken; the message names it.
    """
    # Where functions run nothing is ever packed: the worker is spared the import.
    from kinetic_payload.archives.write import pack

    return pack(stream, root, entries)


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
    contents = Contents(source, max_size=max_size, max_entries=max_entries)
    checked_links(contents.entries)
    digest = expected_tree(contents.entries, expected_digest)
    extraction = Extraction(dest)
    extraction.add(contents)
    extraction.finish()
    return digest
