"""Files that a job did not find, those of modules included: where they are, and how to ship them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

from kinetic.settings.settings import user_home
from kinetic_payload.errors import KineticError
from kinetic_payload.project.ignore import OWN_FILE, ignore_line
from kinetic_payload.project.tree import EXCLUDED, LeftOut

_LONGEST_CHAIN: Final = 20
_MISSING: Final = re.compile(r"No module named '([\w.]+)'")
_IN_PROJECT: Final = re.compile(r"/.*?/(?:host-[0-9]+|kinetic/workspace)/project/(.+)")
"""A file of the project in the workspace of a local job, or of a pod."""
_LINE: Final = re.compile(r"(?:default|.+:[0-9]+): (?!a virtual environment)")
"""The rule of a path that was left out, if it is one that `.kineticignore` can revoke."""


_FRAME: Final = re.compile(r'^( +(?:\| +)*File ")(/[^"]+)(", line )', re.MULTILINE)
"""The beginning of a frame in a traceback, also inside of a group."""


class Project(NamedTuple):
    """The project that a submit shipped."""

    root: Path | None
    """None if no files were shipped."""
    cwd: str = ""
    """The working directory relative to the root."""
    left_out: Sequence[LeftOut] = ()
    image: str | None = None
    """The address of the image, if Kinetic did not choose its packages."""

    def note_on(self, path: str) -> str | None:
        """Return why *path*, relative to the root, was left out of the snapshot, and what to do; else None."""
        for left_out, rule in self.left_out:
            if self.root is not None and f"{path}/".startswith(f"{left_out}/"):
                if rule == EXCLUDED:
                    return f"{left_out!r} is Data of the call: use the path that the function gets."
                text = f"The snapshot of the project leaves out {left_out!r} ({rule})."
                if not _LINE.match(rule):
                    return text
                line = f"!{ignore_line(left_out, is_folder=False)}"
                return f"{text} To ship it, write the line {line} into {self.root / OWN_FILE}."
        return None


def with_own_paths(text: str, project: Project | None) -> str:
    """Return *text*, a note with a traceback of a job, with the paths of the files that *project* shipped."""
    root = project.root if project else None

    def own(frame: re.Match[str]) -> str:
        found = _IN_PROJECT.fullmatch(frame[2])
        path = root / found[1] if root and found else None
        return f"{frame[1]}{path}{frame[3]}" if path and path.is_file() else frame[0]

    return text if root is None else _FRAME.sub(own, text)


def note_on(error: BaseException, project: Project | None) -> str | None:
    """Return a note on the module or file that was missing in the job according to *error*; None if none was.

    *project* is None if another process submitted the job. Nothing is imported.
    """
    cause: BaseException | None = error
    for _ in range(_LONGEST_CHAIN):
        if cause is None:
            break
        if isinstance(cause, FileNotFoundError) and project is not None:
            for path in _paths_in(cause, project.cwd):
                if note := project.note_on(path):
                    return f"{note} To write there, create the folder in the function."
        names = _MISSING.findall(cause.message)[:1] if isinstance(cause, KineticError) else []
        if isinstance(cause, ModuleNotFoundError) and isinstance(cause.name, str):
            names = [cause.name]
        for name in names:
            if place := _place_of(name):
                return _advice(name, place, project)
        cause = cause.__cause__ or cause.__context__
    return None


def _paths_in(error: FileNotFoundError, cwd: str) -> Iterator[str]:
    """Iterate over the paths of *error* that may be in the project, relative to its root."""
    for name in (error.filename, error.filename2):
        if isinstance(name, str | bytes | os.PathLike):
            path = os.path.normpath(os.fsdecode(name))
            if not path.startswith("/"):
                yield os.path.normpath(f"./{cwd}/{path}")
            elif found := _IN_PROJECT.fullmatch(path):
                yield found[1]


def _place_of(name: str) -> Path | None:
    """Return the file of the module *name*, or the folder of a namespace package, on this machine."""
    parts = name.split(".")
    try:
        found: ModuleSpec | None = find_spec(parts[0])
        for count in range(2, len(parts) + 1):
            if found is None or found.submodule_search_locations is None:
                return None
            folders = list(found.submodule_search_locations)
            found = PathFinder.find_spec(".".join(parts[:count]), folders)
    except Exception:  # noqa: BLE001 - import hooks may raise anything; then there is no note
        return None
    if found is None:
        return None
    where = found.origin or next(iter(found.submodule_search_locations or ()), "")
    path = Path(os.path.abspath(where))  # noqa: PTH100
    return path if where and path.exists() else None


def _advice(name: str, place: Path, project: Project | None) -> str:
    """Return why the job did not find the module *name*, which is at *place*, and what to do."""
    import sysconfig
    from importlib.metadata import packages_distributions, version

    if any(part in ("site-packages", "dist-packages") for part in place.parts):
        found = packages_distributions().get(name.partition(".")[0], [])
        what = " and ".join(f"{package} {version(package)}" for package in found) or str(place)
        advice = (
            "add it to the project's requirements, or to the script's own metadata if it has some"
        )
        if project and project.image:
            advice = f"install it in the image {project.image}, whatever the project requires"
        return (
            f"The module {name!r} is installed on this machine ({what}) and not in the job's "
            f"environment: {advice}."
        )
    if place.is_relative_to(sysconfig.get_path("stdlib")):
        return f"The module {name!r} is part of this machine's Python, but not of the job's Python."
    lies = f"The module {name!r} lies at {place} on this machine"
    by_value = "import it at the top of the script or notebook instead of in the function"
    install = "install it as a package that the project requires"
    if project is None:
        return f"{lies}. To ship it, move it into the job's project, {by_value}, or {install}."
    if project.root is None:
        return (
            f"{lies}, and no files were shipped. To ship it, {by_value}, or start Python in the "
            "project's folder."
        )
    if not place.is_relative_to(project.root):
        ways = [f"move it into the project, {by_value}"]
        both = Path(os.path.commonpath([place.parent, project.root]))
        if both not in (user_home(), *user_home().parents):
            ways.append(f"set KINETIC_PACKAGE_ROOT={both}")
        return (
            f"{lies}, outside the project that was shipped, {project.root}. To ship it, "
            f"{', '.join(ways)}, or {install}."
        )
    if note := project.note_on(place.relative_to(project.root).as_posix()):
        return f"{lies}. {note}"
    return (
        f"{lies}, in the project, in a folder that was not on sys.path when the job was submitted. "
        "Put the folder there, in PYTHONPATH for instance, and submit again."
    )
