"""Projects and scripts on disk: their `pyproject.toml` or metadata, read for `-e .` and for workspaces."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import reduce
from itertools import islice
from pathlib import Path
from typing import Final

from packaging.utils import canonicalize_name

from kinetic_images.declared.pyproject import (
    MEMBERS,
    Pyproject,
    Workspace,
    parse_pyproject,
    parse_workspace,
)
from kinetic_images.declared.requirement_files import RequirementSet
from kinetic_images.declared.requirements import LocalRequirement, both
from kinetic_images.declared.toml_text import table
from kinetic_images.declared.uv_files import PYPROJECT, text_of, toml_of
from kinetic_images.errors import DependencyError
from kinetic_images.targets import Category

_BUILD_FILES: Final = ("setup.py", "setup.cfg")


def without_project(
    declared: RequirementSet,
    folder: Path,
    project: Path,
    environ: Mapping[str, str],
    category: Category,
) -> tuple[RequirementSet, list[Pyproject]]:
    """Replace lines for the project and for editable parts of it with their dependencies: their code is shipped.

    Parts are folders in *project*, such as members of its workspace. Also return the projects that were read.

    Raises:
        DependencyError: One of them does not list its dependencies statically.
    """
    shipped = project.resolve()
    roots = {folder.resolve(), shipped}
    local, projects = list[LocalRequirement](), list[Pyproject]()
    requirements, notes = [*declared.requirements], [*declared.notes]
    pending = [(folder, line, frozenset[str]()) for line in declared.local]
    seen = set[object]()
    for place, line, outer in pending:  # It grows.
        markers = outer | {line.marker} if line.marker else outer
        marker = reduce(both, sorted(markers), None)
        for target in _targets(place, line):
            is_part = target.is_relative_to(shipped) and any(
                (target / name).is_file() for name in (PYPROJECT, *_BUILD_FILES)
            )
            if target not in roots and not (is_part and line.editable):
                local.append(replace(line, path=str(target), marker=marker, is_copy=is_part))
                continue
            path = target / PYPROJECT
            pyproject = None
            if path.is_file():
                pyproject = read_pyproject(
                    path, line.extras, environ, category, is_part=target not in roots
                )
            if pyproject is None or not pyproject.lists_dependencies:
                files = [name for name in _BUILD_FILES if (target / name).is_file()]
                if pyproject is not None and pyproject.declares:
                    files.insert(0, PYPROJECT)
                if files:
                    raise DependencyError(
                        f"{line.place}: {line.text!r} stands for the dependencies of the project in {target}. They "
                        f"are not listed statically in {' or '.join(files)} there, so only a build can determine them.",
                        hint=f"List them in [project] of {PYPROJECT}, or write them into requirements.txt in place "
                        f"of the line: uv pip compile {files[0]}",
                    )
            key = target, line.extras, markers
            if pyproject is None or key in seen:
                continue
            seen.add(key)
            # Where the line does not apply, its Python does not count.
            projects.append(replace(pyproject, requires_python=None) if marker else pyproject)
            inner = pyproject.declared
            requirements += [
                replace(each, marker=both(each.marker, marker)) for each in inner.requirements
            ]
            pending += [(target, each, markers) for each in inner.local]
            notes += inner.notes
    replaced = replace(
        declared,
        requirements=tuple(dict.fromkeys(requirements)),
        local=tuple(dict.fromkeys(local)),
        notes=tuple(dict.fromkeys(notes)),
    )
    return replaced, projects


def _targets(folder: Path, line: LocalRequirement) -> list[Path]:
    """Return the folders that *line* of the project in *folder* names."""
    path = (folder / line.path).resolve()
    found = _workspace(folder) if line.path.startswith(MEMBERS) else None
    if found is None:
        return [path]
    root, workspace = found
    name = line.path.removeprefix(MEMBERS)
    members = [
        file.parent.resolve()
        for pattern in workspace.members
        for file in sorted(root.glob(f"{pattern}/{PYPROJECT}"))
        if workspace.has(file.parent.relative_to(root).as_posix())
    ]
    if not name:
        return members
    files = (member / PYPROJECT for member in (root.resolve(), *members))
    projects = ((file.parent, table(toml_of(file).get("project"))) for file in files)
    named = [
        each for each, found in projects if canonicalize_name(str(found.get("name", ""))) == name
    ]
    return named or [path]  # It is refused.


def read_pyproject(
    path: Path,
    extras: tuple[str, ...] = (),
    environ: Mapping[str, str] | None = None,
    category: Category = "cpu",
    *,
    is_part: bool = False,
) -> Pyproject:
    """Read the `pyproject.toml` at *path*, or the metadata of a script.

    For a member of a workspace, use the workspace's sources. *is_part* is the same as in `parse_pyproject`.

    Raises:
        DependencyError: This file, or that of the workspace, cannot be read or understood.
    """
    script = script_metadata(path) if path.name != PYPROJECT else None
    found = _workspace(path.absolute().parent) if script is None else None
    return parse_pyproject(
        text_of(path) if script is None else script,
        str(path) if is_part else path.name,
        extras=extras,
        folder=str(path.parent.absolute()),
        workspace=found[1].sources if found else None,
        environ=environ,
        category=category,
        script=script is not None,
        is_part=is_part,
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
    found = _workspace(path.parent)
    if found is not None and found[0] == path.parent:
        return path.parent
    document = toml_of(path)
    uv = table(table(document.get("tool")).get("uv"))
    if "project" not in document or uv.get("managed") is False:
        return folder
    return found[0] if found else path.parent


def _has_project(folder: Path) -> bool:
    return (folder / PYPROJECT).is_file()


def _workspace(folder: Path) -> tuple[Path, Workspace] | None:
    """Return the workspace to which the project in *folder* belongs, and its root."""
    # As in uv, only the nearest project above decides, even if a workspace above it includes this folder.
    for root in islice(filter(_has_project, (folder, *folder.parents)), 2):
        text = text_of(root / PYPROJECT)
        workspace = None
        if "workspace" in text:
            workspace = parse_workspace(text, str(root / PYPROJECT), str(root))
        if workspace is not None and (
            root == folder or workspace.has(folder.relative_to(root).as_posix())
        ):
            return root, workspace
    return None


# https://packaging.python.org/en/latest/specifications/inline-script-metadata/
_BLOCK: Final = re.compile(
    r"(?m)^# /// (?P<type>[a-zA-Z0-9-]+)$\s(?P<content>(^#(| .*)$\s)+)^# ///$"
)


def script_metadata(path: Path) -> str | None:
    """Return the metadata in the script *path* as TOML, with the script's line numbers.

    Return None if it has none, or cannot be read.

    Raises:
        DependencyError: There are several such blocks.
    """
    try:
        text = path.read_bytes().decode(errors="replace").replace("\r\n", "\n")
    except OSError:
        return None
    blocks = [found for found in _BLOCK.finditer(text) if found["type"] == "script"]
    if len(blocks) > 1:
        raise DependencyError(
            f"{path} has {len(blocks)} blocks `# /// script`.", hint="Write all metadata into one."
        )
    for found in blocks:
        before = text[: found.start("content")].count("\n")
        lines = (line.removeprefix("#").removeprefix(" ") for line in found["content"].splitlines())
        return "\n" * before + "\n".join(lines)
    return None
