"""Base images, and images that the user names: which Python, C library and packages they have."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
from packaging.utils import InvalidName, canonicalize_name
from packaging.version import InvalidVersion, Version

from kinetic_images.errors import (
    ImageNotFoundError,
    RegistryLoginError,
    RegistryPermissionError,
    RegistryUnavailableError,
)
from kinetic_images.image_files import has_program
from kinetic_images.kept_records import find_record, keep_record
from kinetic_images.registry.names import parse_reference
from kinetic_images.registry.oci import ImageConfig
from kinetic_images.registry.registry import Registry
from kinetic_images.targets import DEBIAN_12_GLIBC, Category, Machine, Target

PROGRAM: Final = "python3"
"""The program that runs a job."""
PYTHON_LABEL: Final = "kinetic.python"
"""The label with the minor version of an image's `python3`, as `3.11`."""
GLIBC_LABEL: Final = "kinetic.glibc"
"""The label with the version of an image's C library, as `2.36`."""
PACKAGES_LABEL: Final = "kinetic.packages"
"""The label with the packages that an image of `kinetic build-image` contains: `NAME==VERSION` each, with spaces between."""
_PYTHON_VARIABLE: Final = "PYTHON_VERSION"
"""Set by the images of Python on Docker Hub (https://github.com/docker-library/python)."""


@dataclass(frozen=True)
class BaseImage:
    """An image on which others are built."""

    reference: str
    """By digest: `HOST/PATH@sha256:…`."""
    target: Target
    """What its labels and variables say; otherwise the requested Python, and the glibc of Debian 12."""
    labelled: bool = True
    """Whether it says which Python it has."""
    packages: Mapping[str, str] | None = None
    """The versions of the packages that its label names, by canonical name; None: it has no such label."""


def default_base(python: str) -> str:
    """Return the image of Docker Hub on which images for *python* (`3.11`) are built by default."""
    return f"docker.io/library/python:{python}-slim"


def base_image(repository: str, category: Category, version: str) -> str:
    """Return the address of a base image of `kinetic build-image` for jobs in prebuilt mode."""
    return f"{repository.rstrip('/')}/base-{category}:{version}"


class SeenImage(msgspec.Struct, frozen=True):
    """What an image says of itself."""

    digest: str
    """The digest of the manifest for the wanted platform."""
    python: str | None
    """The minor version of its Python; None: it does not say, and may have one."""
    glibc: tuple[int, int] | None
    packages: dict[str, str] | None
    """The versions of the packages that its label names, by canonical name; None: it has no such label."""


def look_at(
    reference: str, machine: Machine, registry: Registry, home: Path
) -> tuple[str, SeenImage]:
    """Return the digest of the image *reference*, and what it says of itself; that is kept in *home*.

    The next time, only the digest of a tag is asked for, and nothing if *reference* contains the digest.

    Raises:
        ImageNotFoundError: There is no such image, or none for *machine*, or it has no `python3`.
        RegistryError: The registry cannot be queried.
    """
    name = parse_reference(reference)
    repository = registry.repository(name)
    digest = registry.digest(reference)
    if digest is None:
        raise ImageNotFoundError(
            f"There is no image {name}.",
            hint="Check the name and the tag, and that the image was pushed.",
        )
    architecture = Target(python="", machine=machine).architecture
    key = hashlib.sha256(f"{name.repository}@{digest} {architecture}".encode()).hexdigest()
    path = home / "cache" / "images" / "seen" / f"{key}.json"
    with suppress(msgspec.ValidationError):
        return digest, msgspec.convert(find_record(path), SeenImage)
    image = repository.image(digest, architecture)
    minor = python_of(image.config)
    if minor is None and has_program(image, repository, PROGRAM) is False:
        raise ImageNotFoundError(
            f"The image {reference} contains no {PROGRAM}, with which jobs are run.",
            hint="Name an image with Python, such as python:3.11-slim, or install Python in it.",
        )
    glibc = re.fullmatch(r"(\d+)\.(\d+)", image.config.labels.get(GLIBC_LABEL, ""))
    seen = SeenImage(
        digest=image.digest,
        python=minor,
        glibc=(int(glibc[1]), int(glibc[2])) if glibc else None,
        packages=packages_of(image.config),
    )
    keep_record(path, msgspec.structs.asdict(seen))
    return digest, seen


def find_base(
    reference: str, python: str, machine: Machine, registry: Registry, home: Path
) -> BaseImage:
    """Return the base image *reference* for *machine*, after a check that it has *python* (`3.11`).

    What was seen of an image is kept in *home* by its digest.

    Raises:
        ImageNotFoundError: There is no such image, or it is for other machines or another Python, or has none.
        InvalidReferenceError: *reference* is not the address of an image.
        RegistryError: The registry cannot be queried.
    """
    name = parse_reference(reference)
    try:
        _, seen = look_at(reference, machine, registry, home)
    except ImageNotFoundError as error:
        hint = f"{error.hint} KINETIC_BASE_IMAGE names the base image."
        raise ImageNotFoundError(error.message, hint=hint) from None
    if seen.python is not None and seen.python != python:
        raise ImageNotFoundError(
            f"The base image {reference} has Python {seen.python}, and this process runs Python {python}: "
            "functions cannot be pickled for another minor version.",
            hint=f"Name a base image with Python {python} (KINETIC_BASE_IMAGE), or use Python {seen.python} here.",
        )
    return BaseImage(
        str(name.at(seen.digest)),
        Target(python=python, machine=machine, glibc=seen.glibc or DEBIAN_12_GLIBC),
        labelled=seen.python is not None,
        packages=seen.packages,
    )


def inspect_image(
    uri: str, *, python: str, machine: Machine, registry: Registry, home: Path
) -> tuple[str, tuple[str, ...]]:
    """Look at the image *uri*, which will run a function of Python *python* (`3.11`) on *machine*.

    Return its address by digest, and notes for the user. If the registry cannot be queried from here, the image
    is used as it is named: the nodes of a cluster may have access to it.

    Raises:
        InvalidReferenceError: *uri* is not the address of an image.
        ImageNotFoundError: The registry has no such image, or none for the machine, or it has no `python3`.
        RegistryError: The image is malformed.
    """
    name = parse_reference(uri)
    try:
        digest, seen = look_at(uri, machine, registry, home)
    except (RegistryLoginError, RegistryPermissionError, RegistryUnavailableError) as error:
        note = f"The image {uri} could not be checked from here, and is used as it is named. {error.message}"
        return uri, (note,)
    found, notes = seen.python, tuple[str, ...]()
    if found is None:
        notes = (
            f"The image {uri} does not say which Python it has. It must have python3, cloudpickle and "
            "google-cloud-storage.",
        )
    elif found != python:
        notes = (
            f"The image {uri} says that it has Python {found}, and this process runs Python {python}: "
            "a function pickled here may not load there.",
        )
    return str(name.at(digest)), notes


def python_of(config: ImageConfig) -> str | None:
    """Return the minor version of an image's Python, as its label or its variable names it; None: neither does."""
    found = config.labels.get(PYTHON_LABEL) or config.env.get(_PYTHON_VARIABLE, "")
    return ".".join(found.split(".")[:2]) or None


def packages_label(packages: Mapping[str, str]) -> str:
    """Return the value of `PACKAGES_LABEL` for *packages*: canonical name → version."""
    return " ".join(f"{name}=={version}" for name, version in sorted(packages.items()))


def packages_of(config: ImageConfig) -> dict[str, str] | None:
    """Return the versions of the packages that an image's label names, by canonical name; None: it has no such label.

    Words that are not `NAME==VERSION` are left out: anybody can write a label.
    """
    if PACKAGES_LABEL not in config.labels:
        return None
    found = {}
    for entry in config.labels[PACKAGES_LABEL].split():
        name, _, version = entry.partition("==")
        with suppress(InvalidVersion, InvalidName):
            Version(version)
            found[str(canonicalize_name(name, validate=True))] = version
    return found
