"""Input of uv: files and arguments with the packages to install."""

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
    """Requirements: `-r` of `uv pip install`."""
    settings: Path | None
    """The `uv.toml` to run it with, or None."""


def write_input(
    folder: Path,
    dependencies: Dependencies,
    *,
    asked: bool = True,
    additions: Iterable[str] = (),
    constraints: Iterable[str] = (),
) -> UvInput:
    """Write files to *folder* that request *dependencies* and our *additions* from uv.

    *constraints* are added to those of the dependencies. Without *asked*, only the additions are
    requested, from the indexes of the dependencies. Files of an earlier call are replaced; they may
    contain credentials.
    """
    lines = dependencies.installer_lines() if asked else dependencies.option_lines()
    arguments = dependencies.installer_arguments()
    if not asked:  # There are no hashes of our additions.
        arguments = [one for one in arguments if one != "--require-hashes"]
    limits = _written(folder / "constraints.txt", [*dependencies.constraint_lines(), *constraints])
    files = [_written(folder / "requirements.txt", [*lines, *additions])]
    project = dependencies.installer_project() if asked else None
    if project is not None:
        files.append(_written(folder / "pyproject.toml", [project]))
    text = dependencies.installer_settings()
    settings = _written(folder / "uv.toml", [text]) if text else None
    return UvInput((*arguments, "-c", str(limits)), tuple(files), settings)


def _written(path: Path, lines: Iterable[str]) -> Path:
    write_private(path, "".join(f"{line}\n" for line in lines).encode())
    return path
