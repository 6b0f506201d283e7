"""Locks that a project has: `uv.lock`, `pylock.toml` or `SCRIPT.lock` beside the file that declares its dependencies."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from kinetic_images.declared.projects import settings_folder
from kinetic_images.declared.requirement_files import read_requirements
from kinetic_images.declared.requirements import Requirement, marker_holds
from kinetic_images.declared.toml_text import Lines, parsed_toml
from kinetic_images.declared.uv_files import PYPROJECT
from kinetic_images.dependencies import Dependencies
from kinetic_images.errors import DependencyError, InstallError
from kinetic_images.lock.packages import LockedPackage
from kinetic_images.lock.pylock import kept_address, read_pylock
from kinetic_images.targets import Target, target_environment
from kinetic_images.uv import Uv

UV_LOCK: Final = "uv.lock"
PYLOCK: Final = "pylock.toml"
_OF_UV: Final = ".lock"
_STALE: Final = "needs to be updated"
"""What uv prints about a lock that does not fit."""


@dataclass(frozen=True)
class ProjectLock:
    """A lock beside the project's declaration."""

    path: Path
    data: bytes = field(repr=False)

    @property
    def digest(self) -> str:
        """The digest of the file."""
        return hashlib.sha256(self.data).hexdigest()

    @property
    def text(self) -> str:
        """The text of the file."""
        return self.data.decode(errors="replace")

    def place(self, name: str, version: str = "") -> str | None:
        """Return `file:line` of the package *name*, or of its *version*; None: the lock does not contain it."""
        array = "package" if self.path.suffix == _OF_UV else "packages"
        lines, entries = Lines(self.text, str(self.path)), parsed_toml(self.text, str(self.path))
        for number, entry in enumerate(entries.get(array, [])):
            is_it = canonicalize_name(str(entry.get("name"))) == name
            if is_it and version in ("", entry.get("version")):
                return str(lines.entry(array, number) or self.path)
        return None


@dataclass(frozen=True)
class Pins:
    """What a lock prescribes for a target."""

    lock: ProjectLock
    constraints: tuple[str, ...] = ()
    """Exact versions: `NAME==VERSION`."""
    overrides: tuple[str, ...] = ()
    """Addresses that replace those of the requirements: `NAME @ URL`."""
    allowed: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Canonical name → the SHA-256 digests of its files."""


def find_lock(dependencies: Dependencies) -> ProjectLock | None:
    """Return the lock of the project, or None.

    `uv.lock` belongs to a `pyproject.toml`, and is in its folder or that of its workspace. `pylock.toml`
    belongs to the file beside it. The lock of a script is `SCRIPT.lock`.

    Raises:
        DependencyError: The lock cannot be read.
    """
    if dependencies.source is None:
        return None
    folder = dependencies.source.parent
    candidates = [folder / PYLOCK]
    if dependencies.is_script:
        candidates = [folder / f"{dependencies.source.name}{_OF_UV}"]
    elif dependencies.source.name == PYPROJECT:
        candidates[:0] = [folder / UV_LOCK, settings_folder(folder) / UV_LOCK]
    for path in candidates:
        try:
            return ProjectLock(path, path.read_bytes())
        except FileNotFoundError:
            continue
        except OSError as error:
            raise DependencyError(
                f"{path} cannot be read: {error.strerror}.", hint="Check its permissions."
            ) from error
    return None


def pins_of(
    lock: ProjectLock,
    dependencies: Dependencies,
    target: Target | None,
    markers: Mapping[str, str],
    uv: Uv,
) -> Pins:
    """Return what *lock* prescribes for *target*, after a check that it fits *dependencies*.

    *markers* are the marker variables of the target.

    Raises:
        DependencyError: The lock is stale, not for *target*, or cannot be understood.
        InstallError: uv could not check it.
    """
    if lock.path.suffix == _OF_UV:
        return _pins_of_uv_lock(lock, dependencies, target, markers, uv)
    # The lock was probably written for the Python of its author, a patch version included.
    is_here = target is not None and target.python == "{}.{}".format(*sys.version_info)
    patch = sys.version_info.micro if is_here else 0
    packages = read_pylock(
        lock.text, str(lock.path), target, patch=patch, optional=dependencies.chosen
    )
    locked = {package.name: package for package in packages}
    overridden = dependencies.settings.overridden
    for requirement in dependencies.requirements:
        if requirement.name in overridden:
            continue
        package = locked.get(requirement.name)
        address = (requirement.url or "").partition("#")[0]
        commit = re.search(r"@([0-9a-f]{40})$", address)
        if package is None:
            seen = f"the lock {lock.path} does not contain {requirement.name}"
        elif requirement.url is None and package.version:
            if SpecifierSet(requirement.specifier).contains(package.version, prereleases=True):
                continue
            seen = f"{_entry(lock, package)} has version {package.version}"
        elif requirement.url is not None and (
            kept_address(address, direct=True) != package.address
            if package.file
            else commit is not None and commit[1] != package.sha256
        ):
            seen = f"{_entry(lock, package)} has it from {package.address}"
        else:
            continue
        raise DependencyError(
            f"{dependencies.shown(requirement.place)}: {requirement.canonical} is required, but {seen}: "
            "the lock is stale.",
            hint="Write the lock again with the tool that wrote it, or delete it.",
        )
    return Pins(
        lock,
        tuple(package.requirement for package in packages if not package.direct),
        tuple(package.requirement for package in packages if package.direct),
        {package.name: frozenset({package.sha256}) for package in packages if package.file},
    )


def _entry(lock: ProjectLock, package: LockedPackage) -> str:
    return lock.place(package.name, package.version) or str(lock.path)


def _pins_of_uv_lock(
    lock: ProjectLock,
    dependencies: Dependencies,
    target: Target | None,
    markers: Mapping[str, str],
    uv: Uv,
) -> Pins:
    source = dependencies.source
    assert source is not None, "`find_lock` finds none without a source"
    chosen, folder = dependencies.chosen, source.parent
    script = ["--script", source.name] if dependencies.is_script else []
    more = [word for extra in chosen.extras for word in ("--extra", extra)]
    more += [word for group in chosen.groups for word in ("--group", group)]
    try:
        uv.run("lock", "--check", *script, folder=folder, project=folder)
    except InstallError as error:
        if _STALE not in error.output:
            error.hint = f"Correct the problem, or delete {lock.path} if it is not used any more."
            raise
        reasons = (line for line in error.output.splitlines() if "existing lockfile" in line)
        lead = f"{lock.path}: the lock is stale: it does not fit {source}."
        raise DependencyError(
            " ".join([lead, *reasons]),
            hint=f"Update it with: {' '.join(['uv lock', *script])}",
        ) from None
    # uv's name for `environments` of [tool.uv]. Elsewhere, the markers of all lines that uv exports are false.
    supported = parsed_toml(lock.text, str(lock.path)).get("supported-markers", [])
    known = target_environment(target.platform, target.python) if target else markers
    if supported and not any(marker_holds(marker, known) for marker in supported):
        where = f"Python {target.python} on {target.platform}" if target else "this Python"
        raise DependencyError(
            f"{lock.path}: the lock does not apply to {where}. Its environments are: {' | '.join(supported)}.",
            hint="Add a marker that holds there to environments of [tool.uv], then: uv lock",
        )
    exported = uv.run(
        "export", "--frozen", "--quiet", "--format", "requirements-txt",
        "--no-header", "--no-annotate", "--no-default-groups", "--no-emit-local",
        *(script or ["--no-emit-workspace"]), *more,
        folder=folder, project=folder,
    )  # fmt: skip
    lines = [
        line
        for line in read_requirements(lock.path.name, lambda _: exported.encode()).requirements
        if line.applies(markers)
    ]
    return Pins(
        lock,
        tuple(f"{line.name}{line.specifier}" for line in lines if line.url is None),
        tuple(f"{line.name} @ {line.url}" for line in lines if line.url is not None),
        {line.name: frozenset(sha256_of(line)) for line in lines if line.hashes},
    )


def sha256_of(line: Requirement) -> Iterator[str]:
    """Iterate over the SHA-256 digests that *line* allows."""
    for text in line.hashes:
        kind, _, digest = text.partition(":")
        if kind == "sha256":
            yield digest.lower()
