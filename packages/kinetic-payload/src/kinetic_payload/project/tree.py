"""Walk of a folder: what a snapshot of it contains, and what it leaves out, with the reason.

A link to a path inside the tree stays a link, with a relative target that is rewritten if it would leave
the tree on the way. A link to a path outside is replaced by its target, a file or a whole folder, because
it would be broken in a job; inside such a folder the same holds for links that stay inside it. A link to a
folder that contains the tree, or to one that is being walked, is left out, as are dangling links that lead
outside, sockets, pipes and devices.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Set
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from unicodedata import normalize

from kinetic_payload.archives.safe_paths import link_goal, unsafe_path
from kinetic_payload.digests import TreeEntry
from kinetic_payload.project.ignore import ENVIRONMENT_MARKERS, Scope
from kinetic_payload.project.ignore_files import scope_in
from kinetic_payload.project.roots import composed_path

EXCLUDED: Final = "data"
"""The rule that `LeftOut` shows for paths that the caller excludes."""
SYSTEM_FILE: Final = "macOS keeps it for its own use"
"""The rule that `LeftOut` shows for `.DS_Store` and similar files in data."""


class Exclusions:
    """Files and folders that are left out, under any of their paths: they are identified by device and inode.

    On a file system that ignores case or Unicode normalisation (APFS) one folder has several paths, and a bind
    mount gives it another one.
    """

    def __init__(self, paths: Iterable[str | os.PathLike[str]]) -> None:
        self._real = frozenset(os.path.realpath(path) for path in paths)
        self._inodes: dict[int, list[tuple[int, str]]] = {}
        """Devices and folded names, by inode."""
        for path in self._real:
            try:
                status = os.stat(path)  # noqa: PTH116
            except OSError:
                continue  # A path that does not exist has no other names.
            same = self._inodes.setdefault(status.st_ino, [])
            same.append((status.st_dev, _folded(path.rpartition("/")[2])))

    def has(self, path: str, inode: int | None = None) -> bool:
        """Return whether *path*, which leads through no link, is excluded.

        Args:
            inode: The inode that its folder lists, which costs nothing; None if it is not known.
        """
        if path in self._real:
            return True
        if not self._inodes or (inode is not None and inode not in self._inodes):
            return False
        try:
            found = os.lstat(path)
        except OSError:
            return False
        # Another hard link is a different file for the user: only the given name is left out.
        many = not stat.S_ISDIR(found.st_mode) and found.st_nlink > 1
        return any(
            device == found.st_dev and (not many or name == _folded(path.rpartition("/")[2]))
            for device, name in self._inodes.get(found.st_ino, ())
        )


class LeftOut(NamedTuple):
    """A path that is not in a snapshot, with everything below it."""

    path: str
    rule: str
    """`src/.gitignore:3: *.log`, `default: .env*`, `data`, or another reason."""


class FoundFile(NamedTuple):
    """A regular file, or the target of a link."""

    path: str
    mode: int
    status: os.stat_result


@dataclass(slots=True)
class Tree:
    """The result of a walk, in no particular order."""

    files: list[FoundFile] = field(default_factory=list)
    others: list[TreeEntry] = field(default_factory=list)
    """Folders and links."""
    left_out: list[LeftOut] = field(default_factory=list)
    problems: dict[str, OSError] = field(default_factory=dict)


class Place(NamedTuple):
    """A real folder, and its path in the tree."""

    real: str
    path: str


def walk(root: str, scope: Scope | None, exclude: Exclusions) -> Tree:
    """Walk the folder *root*.

    Args:
        scope: The rules for its top; None takes everything, and files in place of links to them.
        exclude: Paths that are left out.
    """
    real = os.path.realpath(root)
    walker = Walker(everything=scope is None, exclude=exclude)
    walker.todo.append(Folder(real, "", scope or Scope(()), (Place(real, ""),)))
    while walker.todo:
        walker.take(walker.todo.pop())
    tree, goals = walker.tree, walker.link_goals
    _normalize_goals(tree, real, goals)
    # Rewrite link targets that would lead elsewhere, or outside, after extraction.
    targets = {entry.path: entry.target for entry in tree.others if entry.kind == "link"}
    kept = set(targets)
    while wrong := {path for path in kept if link_goal(path, targets) not in (path, goals[path])}:
        for path in wrong:
            # Goals are real paths, so these targets do not lead through another link.
            targets[path] = os.path.relpath(f"/{goals[path]}", f"/{os.path.dirname(path)}")  # noqa: PTH120
        kept -= wrong
    tree.others = [
        entry._replace(target=targets[entry.path]) if entry.kind == "link" else entry
        for entry in tree.others
    ]
    return tree


class Folder(NamedTuple):
    """A folder that is still to be walked."""

    real: str
    path: str
    scope: Scope
    places: tuple[Place, ...]
    """The root, and the folders outside of it that links on the way here lead to."""


class Walker:
    """Walk of a tree, folder by folder: each folder that is taken adds those in it to `todo`."""

    def __init__(self, *, everything: bool, exclude: Exclusions) -> None:
        self.tree = Tree()
        self.todo: list[Folder] = []
        self.link_goals: dict[str, str] = {}
        """The path in the tree that each link leads to, for links that stay links."""
        self._everything = everything
        self._exclude = exclude

    def take(self, folder: Folder) -> None:
        """Add the entries of *folder*."""
        path = folder.path
        prefix = f"{path}/" if path else ""
        try:
            if path:
                status = os.stat(folder.real)  # noqa: PTH116
                # A directory entry of a mount point has the inode of the folder that it hides.
                if self._exclude.has(folder.real, status.st_ino):
                    self._leave_out(path, EXCLUDED)
                    return
                # Its owner keeps all rights: otherwise the worker could not remove it.
                mode = status.st_mode & 0o777 | 0o700
            with os.scandir(folder.real) as listing:
                found = list(listing)
        except OSError as error:
            self._problem(path or ".", error)
            return
        scope = folder.scope
        names = {entry.name for entry in found}
        if not self._everything:
            if path and not ENVIRONMENT_MARKERS.isdisjoint(names):
                self._leave_out(path, "default: a virtual environment")
                return
            scope = scope_in(scope, folder.real, prefix, names)
        if path:
            self.tree.others.append(TreeEntry(path, "dir", mode))
        for entry in found:
            try:
                name = entry.name
                if not name.isascii() and normalize("NFC", name) not in names:
                    name = composed_path(folder.real, name)
                if self._everything and is_system_file(name, names):
                    self._leave_out(prefix + name, SYSTEM_FILE)
                else:
                    self._entry(entry, prefix + name, name, scope, folder.places)
            except OSError as error:
                self._problem(prefix + entry.name, error)

    def _problem(self, path: str, error: OSError) -> None:
        # A file that was deleted after it was listed is no problem.
        if not isinstance(error, FileNotFoundError) or path == ".":
            self.tree.problems[path] = error

    def _leave_out(self, path: str, rule: str) -> None:
        self.tree.left_out.append(LeftOut(path, rule))

    def _entry(
        self,
        entry: os.DirEntry[str],
        path: str,
        name: str,
        scope: Scope,
        places: tuple[Place, ...],
    ) -> None:
        is_link = entry.is_symlink()
        # Git treats a link as a file, whatever it leads to.
        is_folder = not is_link and entry.is_dir(follow_symlinks=False)
        if self._exclude.has(entry.path, entry.inode()):
            self._leave_out(path, EXCLUDED)
        elif not self._everything and (rule := scope.leaves_out(name, is_folder=is_folder)):
            self._leave_out(path, str(rule))
        elif (why := unsafe_path(path)) is not None:
            self._leave_out(path, f"its name is not safe in an archive: {why}")
        elif is_link:
            self._link(entry, path, name, scope, places)
        elif is_folder:
            self.todo.append(Folder(entry.path, path, scope.inner(name), places))
        else:
            self._file(path, entry.stat(follow_symlinks=False))

    def _file(self, path: str, status: os.stat_result) -> None:
        if stat.S_ISREG(status.st_mode):
            self.tree.files.append(FoundFile(path, status.st_mode & 0o777, status))
        else:
            self._leave_out(path, "neither a file nor a folder")

    def _link(
        self,
        entry: os.DirEntry[str],
        path: str,
        name: str,
        scope: Scope,
        places: tuple[Place, ...],
    ) -> None:
        goal = os.path.realpath(entry.path)
        try:
            status = entry.stat()
        except OSError:
            status = None  # Dangling, or a circle.
        leads_to_file = status is not None and not stat.S_ISDIR(status.st_mode)
        inside = None
        if not (self._everything and leads_to_file):
            found = (within(goal, place) for place in reversed(places))
            inside = next((path for path in found if path is not None), None)
        if self._exclude.has(goal):
            self._leave_out(path, EXCLUDED)
        elif inside is not None:
            target = os.readlink(entry.path)  # noqa: PTH115
            self.link_goals[path] = inside
            self.tree.others.append(TreeEntry(path, "link", 0o777, target=target))
        elif status is None:
            self._leave_out(path, "a link that leads nowhere")
        elif not self._everything and (
            rule := scope.leaves_out_goal(name, goal, is_folder=not leads_to_file)
        ):
            self._leave_out(path, str(rule))
        elif leads_to_file:
            self._file(path, status)
        elif any(within(place.real, Place(goal, "")) is not None for place in places):
            self._leave_out(path, f"a link to {goal}, which contains the link itself")
        elif not self._everything and (rule := scope.leaves_out(name, is_folder=True)):
            # Git sees a link, but a folder would be shipped: `.aws/` matches it, too.
            self._leave_out(path, str(rule))
        else:
            inner = scope.inner(name)
            self.todo.append(Folder(goal, path, inner, (*places, Place(goal, path))))


def is_system_file(name: str, names: Set[str]) -> bool:
    """Return whether macOS created *name* in a folder of *names* for its own use.

    On foreign file systems, macOS keeps the attributes of a file in a second file, named `._` and the name
    of the first. A file named `._…` without such a first file belongs to the user.
    """
    return name == ".DS_Store" or (name.startswith("._") and name[2:] in names)


def within(real: str, place: Place) -> str | None:
    """Return the path in the tree that the real path *real* has through *place*; None if it is outside."""
    if real == place.real:
        return place.path
    within = place.real if place.real.endswith("/") else f"{place.real}/"
    if not real.startswith(within):
        return None
    inside = real[len(within) :]
    return f"{place.path}/{inside}" if place.path else inside


def _normalize_goals(tree: Tree, root: str, goals: dict[str, str]) -> None:
    """Replace each goal by the path that the tree has for it, if the file system ignores case or form."""
    if not goals:
        return
    paths = {"", *(file.path for file in tree.files), *(entry.path for entry in tree.others)}
    strange = {link: goal for link, goal in goals.items() if goal not in paths}
    if not strange:
        return
    known = {_folded(path): path for path in paths}
    for link, goal in strange.items():
        path = known.get(_folded(goal))
        with suppress(OSError):
            # A file system that distinguishes case and form may have two files.
            if path and os.path.samefile(f"{root}/{path}", f"{root}/{link}"):  # noqa: PTH121
                goals[link] = path


def _folded(path: str) -> str:
    return normalize("NFC", path).casefold()
