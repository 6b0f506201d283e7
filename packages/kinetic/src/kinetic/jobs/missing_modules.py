"""Modules that a job did not find: where they are on this machine, and how to ship them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

from kinetic.settings.settings import user_home
from kinetic_payload.errors import KineticError

_LONGEST_CHAIN: Final = 20
_MISSING: Final = re.compile(r"No module named '([\w.]+)'")


class Project(NamedTuple):
    """The project that a submit shipped."""

    root: Path | None
    """None if no files were shipped."""
    image: str | None = None
    """The address of the image, if Kinetic did not choose its packages."""


def note_on(error: BaseException, project: Project | None) -> str | None:
    """Return a note on the module that was missing in the job according to *error*; None if none was.

    *project* is None if another process submitted the job. Nothing is imported.
    """
    for name in _missing_names(error):
        place = _place_of(name)
        if place is not None:
            return _installed(name, place, project) or _outside(name, place, project)
    return None


def _missing_names(error: BaseException | None) -> Iterator[str]:
    for _ in range(_LONGEST_CHAIN):
        if error is None:
            return
        if isinstance(error, ModuleNotFoundError) and isinstance(error.name, str):
            yield error.name
        elif isinstance(error, KineticError):
            yield from _MISSING.findall(error.message)[:1]
        error = error.__cause__ or error.__context__


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


def _installed(name: str, place: Path, project: Project | None) -> str | None:
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
    return None


def _outside(name: str, place: Path, project: Project | None) -> str:
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
    from kinetic_payload.project.snapshot import Membership

    inside = place.relative_to(project.root).as_posix()
    if place.is_file() and not Membership(project.root)(place):
        return (
            f"{lies}, in the project, and was left out of the snapshot. To ship it, write the line "
            f"!/{inside} into {project.root / '.kineticignore'}."
        )
    return (
        f"{lies}, in the project, in a folder that was not on sys.path when the job was submitted. "
        "Put the folder there, in PYTHONPATH for instance, and submit again."
    )
