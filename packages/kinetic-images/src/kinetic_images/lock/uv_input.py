"""Input of uv: files, arguments and variables with which it resolves and installs packages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kinetic_images.declared.toml_text import parsed_toml, toml_text
from kinetic_images.declared.uv_files import UV_TOML
from kinetic_images.declared.uv_settings import absolute_address
from kinetic_images.dependencies import ADDRESSED, Dependencies
from kinetic_images.lock.addresses import full_addresses
from kinetic_images.lock.packages import LockedPackage
from kinetic_images.lock.pylock import pylock_text
from kinetic_payload.files.private import make_folder, write_private

_ARGUMENTS: Final = {
    "--pre": "--prerelease=allow",
    "--trusted-host": "--allow-insecure-host={}",
    "--require-hashes": None,
}
"""Options of requirements files that uv takes as arguments only; None: it gets none."""


@dataclass(frozen=True)
class UvInput:
    """What is given to `uv pip compile` or `uv pip install`."""

    arguments: tuple[str, ...]
    project: Path
    """The folder for which uv finds its settings."""
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)


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

    *constraints* and *overrides* are added to those of the dependencies. If *asked* is false, request only the
    additions, from the indexes of the dependencies. Files of an earlier call are replaced. The files
    may contain credentials.
    """
    base = str(dependencies.folder or "/")
    lines = [
        f"{option.name} {absolute_address(option.value, base)}"
        if option.name in ADDRESSED
        else option.line
        for option in dependencies.options
        if option.name not in _ARGUMENTS
    ]
    arguments = _arguments(dependencies)
    limits = [*(line.line for line in dependencies.constraints), *constraints]
    if limits:  # uv warns about an empty file.
        arguments += ["-c", _written(folder / "constraints.txt", limits)]
    replaced = [*dependencies.overrides, *overrides]
    if replaced:
        arguments += ["--override", _written(folder / "overrides.txt", replaced)]
    requirements = dependencies.requirements if asked else ()
    lines += [line.line for line in requirements if not line.source]
    arguments.append(_written(folder / "requirements.txt", [*lines, *additions]))
    sourced = [line for line in requirements if line.source]
    if sourced:  # A requirements file cannot name the index of a single package.
        project = {
            "name": "kinetic-dependencies",
            "version": "0",
            "dependencies": [line.line for line in sourced],
        }
        sources = {
            line.name: parsed_toml(f"source = {line.source}", "source")["source"]
            for line in sourced
        }
        uv = {"index": dependencies.source_indexes, "sources": sources}
        text = toml_text({"project": project, "tool": {"uv": uv}})
        arguments.append(_written(folder / "pyproject.toml", [text]))
    return UvInput(tuple(arguments), _project(folder, dependencies))


def write_install_input(
    folder: Path,
    dependencies: Dependencies,
    packages: Iterable[LockedPackage],
    environ: Mapping[str, str],
) -> UvInput:
    """Write files to *folder* with which `uv pip install` installs exactly *packages*.

    The files and variables may contain credentials: those of the indexes and addresses that *dependencies* name.
    *environ* is the environment of uv.
    """
    text = pylock_text(packages, addresses=full_addresses(dependencies))
    lock = _written(folder / "pylock.toml", [text])
    # uv takes no package from these indexes, only their credentials. Those in its settings it finds itself.
    known = {index.address for index in dependencies.settings.indexes}
    named = {
        index.address: "=".join([*filter(None, [index.options.get("name")]), index.address])
        for index in dependencies.indexes
        if index.address.startswith(("http:", "https:")) and index.address not in known
    }
    indexes = " ".join(filter(None, [environ.get("UV_INDEX"), *named.values()]))
    # `uv pip install -r pylock.toml` is a preview. All files in the lock have digests.
    options = ("--preview-features", "pylock", "--no-require-hashes", "-r", lock)
    hosts = [each for each in _arguments(dependencies) if "insecure-host" in each]
    variables = {"UV_INDEX": indexes} if named else {}
    return UvInput((*hosts, *options), _project(folder, dependencies), variables)


def _arguments(dependencies: Dependencies) -> list[str]:
    texts = ((_ARGUMENTS.get(option.name), option.value) for option in dependencies.options)
    return [text.format(value) for text, value in texts if text]


def _project(scratch: Path, dependencies: Dependencies) -> Path:
    """Return the folder for which uv finds the settings of *dependencies*; without a project, it is in *scratch*."""
    if dependencies.folder is not None:
        return dependencies.folder
    # So that uv searches for neither settings nor a workspace in the folders above.
    project = scratch / "project"
    make_folder(project)
    _written(project / "pyproject.toml", ["[tool.uv.workspace]"])
    if dependencies.settings.of_script:
        _written(project / UV_TOML, [toml_text(dependencies.settings.of_script)])
    return project


def _written(path: Path, lines: Iterable[str]) -> str:
    """Write *lines* to the private file *path*, and return its path."""
    write_private(path, "".join(f"{line}\n" for line in lines).encode())
    return str(path)
