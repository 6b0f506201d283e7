"""Snapshot of a folder: its files with their digests, what is left out, and its archive."""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from kinetic_payload.digests import TreeEntry, tree_digest
from kinetic_payload.errors import DataError, DataNotFoundError, KineticError, PackagingError
from kinetic_payload.frozen import frozen
from kinetic_payload.progress import TrackProgress, silent, size_text
from kinetic_payload.project.hashing import digests_of, unreadable
from kinetic_payload.project.ignore import OWN_FILE, ignore_line
from kinetic_payload.project.ignore_files import top_scope
from kinetic_payload.project.roots import composed_path
from kinetic_payload.project.tree import (
    Exclusions,
    Folder,
    FoundFile,
    LeftOut,
    Place,
    Tree,
    Walker,
    walk,
    within,
)

if TYPE_CHECKING:
    from kinetic_payload.project.stat_cache import StatCache


@frozen()
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
        places = _places_of(path, os.path.abspath(self.root), self._real_root)  # noqa: PTH100
        entries = (self._by_path.get(place) for place in places)
        return any(entry is not None and entry.kind == "file" for entry in entries)

    @cached_property
    def _real_root(self) -> str:
        return os.path.realpath(self.root)

    @cached_property
    def _by_path(self) -> dict[str, TreeEntry]:
        return {entry.path: entry for entry in self.entries}

    def largest(self, count: int = 10) -> list[tuple[str, int]]:
        """Return the largest paths, none inside another: a folder if none of its parts is half of it.

        Each is the line of `.kineticignore` that leaves exactly this out, with the bytes before compression.
        """
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
        found: list[tuple[str, int]] = []
        while heap and len(found) < count:
            size, path = heapq.heappop(heap)
            inner = [(-sizes[child], child) for child in children.get(path, ()) if child in sizes]
            # A part that is at least half of its folder is more helpful than the folder.
            if inner and 2 * min(inner)[0] <= size:
                for item in inner:
                    heapq.heappush(heap, item)
            else:
                found.append((ignore_line(path, is_folder=bool(inner)), -size))
        return found

    def write(self, stream: BinaryIO, entries: Iterable[TreeEntry] | None = None) -> int:
        """Write the archive of the tree, or of some *entries* of it, into *stream* and return its size.

        Raises:
            PackagingError: A file changed since the snapshot was taken; the message names it.
        """
        from kinetic_payload.archives.write import write_archive

        return write_archive(stream, self.root, self.entries if entries is None else entries)

    def oversize_warning(self, limit_mb: float) -> str | None:
        """Return a warning if the project is larger than *limit_mb*, else None."""
        if self.size <= limit_mb * 1_000_000:
            return None
        largest = self.largest()
        width = max((len(line) for line, _ in largest), default=0)
        lines = [
            f"The project in {self.root} is {size_text(self.size)}, more than {limit_mb:g} MB. "
            f"The largest paths, as the lines of {OWN_FILE} that leave them out:",
            *(f"  {line:<{width}}  {size_text(size)}" for line, size in largest),
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
        raise unreadable(error_class, what, root, tree.problems)
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


class Membership:
    """Decide for single files whether a snapshot of *root* will contain them.

    Only the folders on the way to these files are read, each once.
    """

    def __init__(
        self, root: Path, *, exclude: Iterable[Path] = (), no_defaults: bool = False
    ) -> None:
        self._root = os.path.abspath(root)  # noqa: PTH100
        self._real = os.path.realpath(self._root)
        self._exclude = Exclusions(exclude)
        self._scope = top_scope(Path(self._root), no_defaults=no_defaults)
        self._walked: dict[str, Walker | None] = {}
        """By path of a folder: what it holds; None if it is left out."""

    def __call__(self, path: Path) -> bool:
        """Return whether the file *path* itself will be in the snapshot."""
        for place in _places_of(path, self._root, self._real):
            walker = self._walk(place.rpartition("/")[0])
            if walker is not None and any(file.path == place for file in walker.tree.files):
                return True
        return False

    def _walk(self, path: str) -> Walker | None:
        """Read the folder at *path* alone."""
        if path not in self._walked:
            if path:
                above = self._walk(path.rpartition("/")[0])
                found = above.todo if above is not None else ()
                folder = next((inner for inner in found if inner.path == path), None)
            else:
                folder = Folder(self._real, "", self._scope, (Place(self._real, ""),))
            walker = None
            if folder is not None:
                walker = Walker(everything=False, exclude=self._exclude)
                walker.take(folder)
            self._walked[path] = walker
        return self._walked[path]


def file_that_imports(snapshot: Snapshot, module: str) -> str | None:
    """Return the first Python file of *snapshot*, relative to its root, that imports the top-level *module*.

    Imports inside functions count. Files that cannot be read or parsed count as importing nothing.
    """
    import ast
    import warnings

    for entry in snapshot.entries:
        if entry.kind != "file" or not entry.path.endswith(".py"):
            continue
        with suppress(OSError, SyntaxError, ValueError, RecursionError, MemoryError):
            source = (snapshot.root / entry.path).read_bytes()
            if module.encode() not in source:
                continue  # Few files contain the name, so few are parsed.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(source)
            for node in ast.walk(tree):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                if isinstance(node, ast.ImportFrom) and node.level == 0:
                    names = [node.module or ""]
                if any(name.partition(".")[0] == module for name in names):
                    return entry.path
    return None


def _places_of(path: Path, root: str, real_root: str) -> Iterator[str]:
    """Iterate over the paths that the file *path* can have in a snapshot of *root*: as written, and without links."""
    plain = os.path.abspath(path)  # noqa: PTH100
    for candidate, top in ((plain, root), (os.path.realpath(plain), real_root)):
        if place := within(candidate, Place(top, "")):
            yield composed_path(top, place)
