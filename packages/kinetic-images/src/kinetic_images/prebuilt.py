"""Prebuilt mode: a published base image, and the packages that a job installs beside those in it."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from kinetic_images.bases import BaseImage, find_base
from kinetic_images.caches import collect_daily
from kinetic_images.credentials import without_credentials
from kinetic_images.ensure import ImageRequest, ImageServices, resolve_image
from kinetic_images.errors import DependencyError, ImageNotFoundError
from kinetic_images.lock.packages import LockedPackage
from kinetic_images.lock.pylock import FOLDER, travelling_pylock
from kinetic_payload.files.private import make_folder, write_private

_FETCHED: Final = ("http", "https")
_CUDA: Final = re.compile(r"jax-cuda\d+-plugin")
_BUNDLED: Final = "Or use container_image='bundled', which can build packages."


@dataclass(frozen=True, kw_only=True)
class PrebuiltImage:
    """A base image, and the packages that a project needs besides those in it."""

    base: BaseImage
    packages: tuple[LockedPackage, ...]
    """Wheels only, sorted by name."""
    notes: tuple[str, ...]
    """Sentences for the user."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses from which packages are downloaded."""
        return tuple(package.address for package in self.packages if package.local_path is None)


def find_prebuilt(request: ImageRequest, services: ImageServices, *, command: str) -> PrebuiltImage:
    """Return the published image `request.base`, and what has to be installed for *request* at its start.

    Nothing is built. If nothing changed, this is one request to the registry. *command* is the command line
    that publishes the image, for messages.

    Raises:
        DependencyError: A dependency cannot be used or has no wheel; the message names its file and line.
        InstallError: The dependencies cannot be resolved; the message contains uv's output.
        ImageNotFoundError: The image was not published, or has another Python.
        RegistryError: The registry cannot be queried.
    """
    try:
        base = find_base(
            request.base, request.python, request.machine, services.registry, services.home
        )
    except ImageNotFoundError as error:
        hint = f"Publish it with Python {request.python}: {command}"
        raise ImageNotFoundError(error.message, hint=hint) from None
    known = base.packages
    recipe, notes = resolve_image(
        replace(request, base=base.reference, present=known or {}), services
    )
    collect_daily(services.home)
    packages = tuple(
        package
        for package in recipe.packages
        if package.direct or known is None or known.get(package.name) != package.version
    )
    for package in packages:
        _check(package, request)
    plugins = {each.name for each in recipe.packages if _CUDA.fullmatch(each.name)}
    others = {name for name in known or () if _CUDA.fullmatch(name)} - plugins
    if plugins and others:
        raise DependencyError(
            f"The project needs {min(plugins)}, and the image {request.base} has {min(others)}: JAX cannot use both.",
            hint=f"Name the CUDA of the image in the extra of jax, or none. {_BUNDLED}",
        )
    services.resolved()
    if known is None:
        notes = (
            *notes,
            f"The image {request.base} does not list its packages: all packages of the project are installed "
            "at each start of a job.",
        )
    return PrebuiltImage(base=base, packages=packages, notes=notes)


def write_environment(packages: Iterable[LockedPackage], python: str, folder: Path) -> None:
    """Write what a job needs to install *packages* into the empty *folder*: the lock, and local wheels.

    Raises:
        DependencyError: A wheel on this machine has changed since it was locked.
    """
    chosen = tuple(packages)
    write_private(folder / "pylock.toml", travelling_pylock(chosen, python).encode())
    for package in chosen:
        if package.local_path is None:
            continue
        path = folder / FOLDER / package.file
        make_folder(path.parent)
        shutil.copyfile(package.local_path, path)
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        if digest != package.sha256:
            raise DependencyError(
                f"{package.local_path} has changed since its digest was taken.",
                hint="Submit again when nothing writes to it any more.",
            )


def _check(package: LockedPackage, request: ImageRequest) -> None:
    """Refuse a *package* that cannot be installed when a job starts, naming the line that requires it."""
    lines = [line for line in request.dependencies.requirements if line.name == package.name]
    place = f"{request.dependencies.shown(lines[0].place)}: " if lines else ""
    if not package.is_wheel:
        what = f"the source archive {package.file}" if package.file else "a repository"
        raise DependencyError(
            f"{place}{package.name} is {what}, and container_image='prebuilt' installs wheels only.",
            hint=f"Require a version that has a wheel for Python {request.python} on Linux. {_BUNDLED}",
        )
    if any(line.url and urlsplit(line.url).query for line in lines):
        raise DependencyError(
            f"{place}the address of {package.name} has a query, which may be a secret, and jobs do not get it.",
            hint="Use an address without a query, or container_image='bundled'.",
        )
    if package.local_path is None and urlsplit(package.address).scheme not in _FETCHED:
        raise DependencyError(
            f"{place}{package.name} comes from {without_credentials(package.address)}, which jobs cannot "
            "download.",
            hint=f"Use an https address. {_BUNDLED}",
        )
