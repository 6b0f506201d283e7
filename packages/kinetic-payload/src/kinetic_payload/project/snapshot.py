"""Snapshot of a folder: its files with their digests, what was left out, and its archive."""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from kinetic_payload.archives.write import write_archive
from kinetic_payload.digests import TreeEntry, tree_digest
from kinetic_payload.errors import DataError, DataNotFoundError, KineticError, PackagingError
from kinetic_payload.progress import TrackProgress, silent, size_text
from kinetic_payload.project.hashing import UNREADABLE_HINT, digests_of, unreadable
from kinetic_payload.project.ignore import OWN_FILE, ignore_line
from kinetic_payload.project.ignore_files import top_scope
from kinetic_payload.project.roots import composed_path
from kinetic_payload.project.tree import Exclusions, FoundFile, LeftOut, Tree, walk

if TYPE_CHECKING:
    from kinetic_payload.project.stat_cache import StatCache


@dataclass(frozen=True, slots=True)
class LargePath:
    """A file or folder that is a large part of a snapshot."""

    path: str
    size: int
    """In bytes, before compression."""
    ignore_line: str
    """The line of `.kineticignore` that leaves exactly this out."""


@dataclass(frozen=True)
class Snapshot:
    """A tree at one moment; its archive is not written yet."""

    root: Path
    """Absolute."""
    entries: tuple[TreeEntry, ...]
    """Sorted by path."""
    left_out: tuple[LeftOut, ...]
    """Paths that are not in it, with the reason; sorted by path."""

    @cached_property
    def digest(self) -> str:
        """The digest of the tree: of its paths, modes, links and contents only."""
        return tree_digest(self.entries)

    @cached_property
    def size(self) -> int:
        """The bytes of all files, before compression."""
        return sum(entry.size for entry in self.entries)

    def contains(self, path: Path) -> bool:
        """Return whether the file *path* itself is in the snapshot."""
        plain = os.path.abspath(path)  # noqa: PTH100
        candidates = (
            (plain, os.path.abspath(self.root)),  # noqa: PTH100
            (os.path.realpath(plain), self._real_root),
        )
        for candidate, root in candidates:
            if candidate.startswith(prefix := root.rstrip("/") + "/"):
                inside = composed_path(root, candidate[len(prefix) :])
                entry = self._by_path.get(inside)
                if entry is not None and entry.kind == "file":
                    return True
        return False

    @cached_property
    def _real_root(self) -> str:
        return os.path.realpath(self.root)

    @cached_property
    def _by_path(self) -> dict[str, TreeEntry]:
        return {entry.path: entry for entry in self.entries}

    def largest(self, count: int = 10) -> list[LargePath]:
        """Return the largest paths, none inside another: a folder if none of its parts is half of it."""
        sizes: dict[str, int] = {}
        children: dict[str, list[str]] = {}
        for entry in self.entries:
            parent = entry.path.rpartition("/")[0]
            children.setdefault(parent, []).append(entry.path)
            if not entry.size:
                continue
            path = entry.path
            while path:
                sizes[path] = sizes.get(path, 0) + entry.size
                path = path.rpartition("/")[0]
        heap = [(-sizes[path], path) for path in children.get("", ()) if path in sizes]
        heapq.heapify(heap)
        found: list[LargePath] = []
        while heap and len(found) < count:
            size, path = heapq.heappop(heap)
            inner = [(-sizes[child], child) for child in children.get(path, ()) if child in sizes]
            # A part that is at least half of its folder is more helpful than the folder.
            if inner and 2 * min(inner)[0] <= size:
                for item in inner:
                    heapq.heappush(heap, item)
            else:
                line = ignore_line(path, is_folder=bool(inner))
                found.append(LargePath(path, -size, line))
        return found

    def write(self, stream: BinaryIO) -> int:
        """Write the archive of the tree into *stream* and return the archive's size.

        Raises:
            PackagingError: A file changed since the snapshot was taken; the message names it.
        """
        return write_archive(stream, self.root, self.entries)

    def oversize_warning(self, limit_mb: float) -> str | None:
        """Return a warning if the project is larger than *limit_mb*, else None."""
        if self.size <= limit_mb * 1_000_000:
            return None
        largest = self.largest(10)
        width = max((len(item.ignore_line) for item in largest), default=0)
        lines = [
            f"The project in {self.root} is {size_text(self.size)}, more than {limit_mb:g} MB. "
            f"The largest paths, as the lines of {OWN_FILE} that leave them out:",
            *(f"  {item.ignore_line:<{width}}  {size_text(item.size)}" for item in largest),
        ]
        return "\n".join(lines)


def take_snapshot(
    root: Path,
    *,
    exclude: Iterable[Path] = (),
    no_defaults: bool = False,
    cache: StatCache | None = None,
    track: TrackProgress = silent,
) -> Snapshot:
    """Take a snapshot of the project at *root*.

    Args:
        exclude: Paths that are shipped otherwise (local `Data`) or not at all; never *root* itself.
        no_defaults: Do not apply the default excludes. Virtual environments are left out anyway:
            they contain paths and binaries of this machine.
        cache: Digests of an earlier run; an unchanged tree then needs one walk and no reads.
        track: Shows the progress of reading.

    Raises:
        PackagingError: Files cannot be read; the message names all of them.
    """
    root = Path(os.path.abspath(root))  # noqa: PTH100
    tree = walk(str(root), top_scope(root, no_defaults=no_defaults), Exclusions(exclude))
    return _snapshot_of(root, tree, cache, track, PackagingError, "project")


def tree_of(
    path: Path,
    cache: StatCache | None = None,
    *,
    exclude: Iterable[Path] = (),
    track: TrackProgress = silent,
) -> Snapshot:
    """Take a snapshot of local data at *path*: all of it, with files in place of links to them.

    A single file is a tree of one entry. The paths of *exclude* in a folder are left out.

    Raises:
        DataNotFoundError: It does not exist.
        DataError: Files cannot be read; the message names all of them.
    """
    # Keep `..`: after a link it leads to another folder than the text suggests.
    path = path.absolute()
    if path.is_dir():
        tree = walk(str(path), None, Exclusions(exclude))
        return _snapshot_of(path, tree, cache, track, DataError, "data")
    try:
        status = path.stat()
    except OSError as error:
        message = f"{path} cannot be read: {error.strerror}."
        if isinstance(error, FileNotFoundError):
            raise DataNotFoundError(message, filename=str(path)) from error
        raise DataError(message) from error
    tree = Tree(files=[FoundFile(path.name, status.st_mode & 0o777, status)])
    return _snapshot_of(path.parent, tree, cache, track, DataError, "data")


def _snapshot_of(
    root: Path,
    tree: Tree,
    cache: StatCache | None,
    track: TrackProgress,
    error_class: type[KineticError],
    what: str,
) -> Snapshot:
    files = ((f"{root}/{file.path}", file.path, file.status) for file in tree.files)
    digests, problems = digests_of(files, cache, track, f"reading the {what}")
    for path, error in problems.items():
        if not isinstance(error, FileNotFoundError):  # It was deleted meanwhile.
            tree.problems[path] = error
    if tree.problems:
        raise error_class(unreadable(what, root, tree.problems), hint=UNREADABLE_HINT)
    entries = tree.others
    for file in tree.files:
        if file.path in digests:
            digest, size = digests[file.path]
            entries.append(TreeEntry(file.path, "file", file.mode, size, digest))
    return Snapshot(
        root,
        tuple(sorted(entries, key=attrgetter("path"))),
        tuple(sorted(tree.left_out, key=attrgetter("path"))),
    )
