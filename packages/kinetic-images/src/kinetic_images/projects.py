"""Projects on disk: what a `pyproject.toml`, and what `-e .` stands for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from kinetic_images.errors import DependencyError
from kinetic_images.pyproject import Pyproject, Sources, parse_pyproject, parse_workspace
from kinetic_images.requirement_files import RequirementSet
from kinetic_images.requirements import LocalRequirement, both
from kinetic_images.uv_files import PYPROJECT

_BUILD_FILES: Final = ("setup.py", "setup.cfg")


@dataclass(frozen=True)
class Project:
    """A `pyproject.toml` whose dependencies were taken."""

    path: Path
    pyproject: Pyproject


def without_project(
    said: RequirementSet, folder: Path, roots: set[Path], environ: Mapping[str, str]
) -> tuple[RequirementSet, list[Project]]:
    """Replace the project itself (`-e .`), which travels as the snapshot, by what it depends on.

    *roots* are the folders that are the project itself. Return also the projects that were read.

    Raises:
        DependencyError: What the project depends on is not listed as data.
    """
    local, notes = [], list(said.notes)
    requirements = list(said.requirements)
    projects = []
    for one in said.local:
        target = (folder / one.path).resolve()
        if target not in roots:
            local.append(one)
            continue
        path = target / PYPROJECT
        pyproject = None
        if folder / one.place.file != path:
            pyproject = read_pyproject(path, one.extras, environ) if path.is_file() else None
            _refuse_unlisted(one, target, pyproject)
        words = "was left out"
        if pyproject is not None:
            projects.append(Project(path, pyproject))
            inner = pyproject.said
            requirements += [
                replace(each, marker=both(each.marker, one.marker)) for each in inner.requirements
            ]
            local += [
                replace(each, marker=both(each.marker, one.marker))
                for each in inner.local
                if (target / each.path).resolve() not in roots
            ]
            notes += inner.notes
            names = f"../{PYPROJECT}" if target != folder.resolve() else PYPROJECT
            words = f"was replaced by the dependencies in its {names}"
        notes.append(
            f"{one.place}: {one.text!r} is the project itself, which travels with every call: "
            f"the line {words}."
        )
    replaced = replace(
        said,
        requirements=tuple(dict.fromkeys(requirements)),
        local=tuple(local),
        notes=tuple(notes),
    )
    return replaced, projects


def _refuse_unlisted(line: LocalRequirement, target: Path, pyproject: Pyproject | None) -> None:
    """Refuse *line*, the project at *target*, if only its build can tell its dependencies."""
    if pyproject is not None and pyproject.lists_dependencies:
        return
    files = [name for name in _BUILD_FILES if (target / name).is_file()]
    if pyproject is not None and pyproject.declares:
        files.insert(0, PYPROJECT)
    if files:
        raise DependencyError(
            f"{line.place}: {line.text!r} stands for the dependencies of the project in {target}, and "
            f"{' and '.join(files)} there does not list them as data: only its build can tell them.",
            hint=f"List them in [project] of {PYPROJECT}, or write them into requirements.txt in place "
            f"of the line: uv pip compile {files[0]}",
        )


def read_pyproject(
    path: Path, extras: tuple[str, ...] = (), environ: Mapping[str, str] | None = None
) -> Pyproject:
    """Read the `pyproject.toml` at *path*, as a member of its workspace if it is one.

    Raises:
        DependencyError: It, or that of the workspace, cannot be read or understood.
    """
    return parse_pyproject(
        _bytes(path),
        path.name,
        extras=extras,
        folder=str(path.parent.absolute()),
        workspace=_workspace_sources(path.absolute()),
        environ=environ,
    )


def _workspace_sources(path: Path) -> Sources | None:
    """Return the sources of the workspace of which the project with the file *path* is a member."""
    member = path.parent
    for folder in member.parents:
        root = folder / PYPROJECT
        data = _bytes(root) if root.is_file() else b""
        if b"workspace" not in data:
            continue
        workspace = parse_workspace(data, str(root), str(folder))
        if workspace is not None:
            fits = workspace.has(member.relative_to(folder).as_posix())
            return workspace.sources if fits else None
    return None


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DependencyError(
            f"{path} cannot be read: {error.strerror}.", hint="Check its permissions."
        ) from error
