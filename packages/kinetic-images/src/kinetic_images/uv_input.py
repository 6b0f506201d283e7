"""Input of uv: files and arguments that name the packages to install."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kinetic_images.dependencies import Dependencies
from kinetic_payload.files.private import write_private


@dataclass(frozen=True)
class UvInput:
    """Arguments and files for `uv pip install` or `uv pip compile`."""

    options: tuple[str, ...]
    files: tuple[Path, ...]
    """Requirements files: `-r` of `uv pip install`."""
    project: Path
    """The folder for which uv finds its settings."""


def write_input(
    folder: Path,
    dependencies: Dependencies,
    *,
    asked: bool = True,
    additions: Iterable[str] = (),
    constraints: Iterable[str] = (),
    overrides: Iterable[str] = (),
) -> UvInput:
    """Write files to *folder* that request *dependencies* and Kinetic's own *additions* from uv.

    *constraints* and *overrides* are added to those of the dependencies. uv reads its settings itself. If *asked* is false, request only the
    additions, from the indexes of the dependencies. Files of an earlier call are replaced. The files
    may contain credentials.
    """
    lines = dependencies.installer_lines() if asked else dependencies.option_lines()
    arguments = dependencies.installer_arguments()
    if not asked:  # The additions have no hashes.
        arguments = [argument for argument in arguments if argument != "--require-hashes"]
    limits = [*dependencies.constraint_lines(), *constraints]
    if limits:  # uv warns about an empty file.
        arguments += ["-c", str(write_lines(folder / "constraints.txt", limits))]
    replaced = [*dependencies.overrides, *overrides]
    if replaced:
        arguments += ["--override", str(write_lines(folder / "overrides.txt", replaced))]
    files = [write_lines(folder / "requirements.txt", [*lines, *additions])]
    project = dependencies.installer_project() if asked else None
    if project is not None:
        files.append(write_lines(folder / "pyproject.toml", [project]))
    return UvInput(tuple(arguments), tuple(files), project_folder(folder, dependencies))


def project_folder(scratch: Path, dependencies: Dependencies) -> Path:
    """Return the folder for which uv finds the settings of *dependencies*; without a project, it is *scratch*."""
    if dependencies.folder is not None:
        return dependencies.folder
    write_lines(scratch / "uv.toml", [])  # So that uv does not search in the folders above.
    return scratch


def write_lines(path: Path, lines: Iterable[str]) -> Path:
    """Write *lines* to the private file *path*, and return it."""
    write_private(path, "".join(f"{line}\n" for line in lines).encode())
    return path
