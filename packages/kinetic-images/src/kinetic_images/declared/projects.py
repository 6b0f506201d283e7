"""Projects on disk: their `pyproject.toml`, read for `-e .` and for workspaces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from kinetic_images.declared.pyproject import (
    Pyproject,
    Workspace,
    is_managed,
    parse_pyproject,
    parse_workspace,
)
from kinetic_images.declared.requirement_files import RequirementSet
from kinetic_images.declared.requirements import LocalRequirement, both
from kinetic_images.declared.scripts import script_metadata
from kinetic_images.declared.uv_files import PYPROJECT, text_of
from kinetic_images.errors import DependencyError
from kinetic_images.targets import Category

_BUILD_FILES: Final = ("setup.py", "setup.cfg")


def without_project(
    declared: RequirementSet,
    folder: Path,
    roots: set[Path],
    environ: Mapping[str, str],
    category: Category,
) -> tuple[RequirementSet, list[Pyproject]]:
    """Replace lines for the project itself (`-e .`), which is shipped as a snapshot, with its dependencies.

    *roots* are the folders of the project itself. Also return the projects that were read.

    Raises:
        DependencyError: The project does not list its dependencies statically.
    """
    local, notes = [], list(declared.notes)
    requirements = list(declared.requirements)
    projects = []
    for line in declared.local:
        target = (folder / line.path).resolve()
        if target not in roots:
            local.append(line)
            continue
        path = target / PYPROJECT
        pyproject = None
        if folder / line.place.file != path:
            pyproject = (
                read_pyproject(path, line.extras, environ, category) if path.is_file() else None
            )
            _refuse_unlisted(line, target, pyproject)
        action = "was left out"
        if pyproject is not None:
            projects.append(pyproject)
            inner = pyproject.declared
            requirements += [
                replace(each, marker=both(each.marker, line.marker)) for each in inner.requirements
            ]
            local += [
                replace(each, marker=both(each.marker, line.marker))
                for each in inner.local
                if (target / each.path).resolve() not in roots
            ]
            notes += inner.notes
            names = f"../{PYPROJECT}" if target != folder.resolve() else PYPROJECT
            action = f"was replaced by the dependencies in its {names}"
        notes.append(
            f"{line.place}: {line.text!r} is the project itself, which is shipped with every call: "
            f"the line {action}."
        )
    replaced = replace(
        declared,
        requirements=tuple(dict.fromkeys(requirements)),
        local=tuple(local),
        notes=tuple(notes),
    )
    return replaced, projects


def _refuse_unlisted(line: LocalRequirement, target: Path, pyproject: Pyproject | None) -> None:
    """Refuse *line*, the project at *target*, if only a build can determine its dependencies."""
    if pyproject is not None and pyproject.lists_dependencies:
        return
    files = [name for name in _BUILD_FILES if (target / name).is_file()]
    if pyproject is not None and pyproject.declares:
        files.insert(0, PYPROJECT)
    if files:
        raise DependencyError(
            f"{line.place}: {line.text!r} stands for the dependencies of the project in {target}. They are "
            f"not listed statically in {' or '.join(files)} there, so only a build can determine them.",
            hint=f"List them in [project] of {PYPROJECT}, or write them into requirements.txt in place "
            f"of the line: uv pip compile {files[0]}",
        )


def read_pyproject(
    path: Path,
    extras: tuple[str, ...] = (),
    environ: Mapping[str, str] | None = None,
    category: Category = "cpu",
) -> Pyproject:
    """Read the `pyproject.toml` at *path*, or the metadata of a script.

    For a member of a workspace, use the workspace's sources.

    Raises:
        DependencyError: This file, or that of the workspace, cannot be read or understood.
    """
    script = script_metadata(path) if path.name != PYPROJECT else None
    found = _workspace(path.absolute().parent) if script is None else None
    return parse_pyproject(
        text_of(path) if script is None else script,
        path.name,
        extras=extras,
        folder=str(path.parent.absolute()),
        workspace=found[1].sources if found else None,
        environ=environ,
        category=category,
        script=script is not None,
    )


def settings_folder(folder: Path) -> Path:
    """Return the folder from which uv searches for the settings of *folder* (absolute).

    As in uv, it is the root of the workspace that *folder* belongs to, or else the root of its project.

    Raises:
        DependencyError: A `pyproject.toml` cannot be read or understood.
    """
    path = next((p / PYPROJECT for p in (folder, *folder.parents) if _has_project(p)), None)
    if path is None:
        return folder
    if parse_workspace(text_of(path), str(path), str(path.parent)) is not None:
        return path.parent
    if not is_managed(text_of(path), str(path)):
        return folder
    found = _workspace(path.parent)
    return found[0] if found else path.parent


def _has_project(folder: Path) -> bool:
    return (folder / PYPROJECT).is_file()


def _workspace(member: Path) -> tuple[Path, Workspace] | None:
    """Return the workspace that the project in the folder *member* belongs to, and the workspace's root."""
    # As in uv, only the nearest project above decides, even if a workspace above it includes this folder.
    root = next(filter(_has_project, member.parents), None)
    text = text_of(root / PYPROJECT) if root else ""
    if root is None or "workspace" not in text:
        return None
    workspace = parse_workspace(text, str(root / PYPROJECT), str(root))
    if workspace is None or not workspace.has(member.relative_to(root).as_posix()):
        return None
    return root, workspace
