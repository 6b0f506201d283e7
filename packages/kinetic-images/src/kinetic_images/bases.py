"""Base images: which Python and which C library they have."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from packaging.utils import canonicalize_name, is_normalized_name
from packaging.version import InvalidVersion, Version

from kinetic_images.errors import ImageNotFoundError
from kinetic_images.image_files import has_program
from kinetic_images.lock.jax import Category
from kinetic_images.registry.names import parse_reference
from kinetic_images.registry.oci import ImageConfig
from kinetic_images.registry.registry import Registry
from kinetic_images.targets import DEBIAN_12_GLIBC, Machine, Target

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


def find_base(reference: str, python: str, machine: Machine, registry: Registry) -> BaseImage:
    """Return the base image *reference* for *machine*, after a check that it has *python* (`3.11`).

    Raises:
        ImageNotFoundError: There is no such image, or it is for other machines or another Python, or has none.
        InvalidReferenceError: *reference* is not the address of an image.
        RegistryError: The registry cannot be queried.
    """
    name = parse_reference(reference)
    architecture = Target(python=python, machine=machine).architecture
    repository = registry.repository(name)
    image = repository.image(name.version, architecture)
    minor = python_of(image.config)
    if minor is None and has_program(image, repository, PROGRAM) is False:
        raise without_python(reference)
    if minor is not None and minor != python:
        raise ImageNotFoundError(
            f"The base image {reference} has Python {minor}, and this process runs Python {python}: "
            "functions cannot be pickled for another minor version.",
            hint=f"Name a base image with Python {python} (KINETIC_BASE_IMAGE), or use Python {minor} here.",
        )
    glibc = re.fullmatch(r"(\d+)\.(\d+)", image.config.labels.get(GLIBC_LABEL, ""))
    return BaseImage(
        str(name.at(image.digest)),
        Target(
            python=python,
            machine=machine,
            glibc=(int(glibc[1]), int(glibc[2])) if glibc else DEBIAN_12_GLIBC,
        ),
        labelled=minor is not None,
        packages=packages_of(image.config),
    )


def python_of(config: ImageConfig) -> str | None:
    """Return the minor version of an image's Python, as its label or its variable names it; None: neither does."""
    found = config.labels.get(PYTHON_LABEL) or config.env.get(_PYTHON_VARIABLE, "")
    return ".".join(found.split(".")[:2]) or None


def without_python(reference: str) -> ImageNotFoundError:
    """Return the error for an image that certainly has no Python."""
    return ImageNotFoundError(
        f"The image {reference} contains no {PROGRAM}, with which jobs are run.",
        hint="Name an image with Python, such as python:3.11-slim, or install Python in it.",
    )


def packages_label(packages: Mapping[str, str]) -> str:
    """Return the value of `PACKAGES_LABEL` for *packages*: canonical name → version."""
    return " ".join(f"{name}=={version}" for name, version in sorted(packages.items()))


def packages_of(config: ImageConfig) -> Mapping[str, str] | None:
    """Return the versions of the packages that an image's label names, by canonical name; None: it has no such label.

    Words that are not `NAME==VERSION` are left out: anybody can write a label.
    """
    found = config.labels.get(PACKAGES_LABEL)
    if found is None:
        return None
    pairs = (entry.partition("==") for entry in found.split())
    return {
        str(canonicalize_name(name)): version
        for name, _, version in pairs
        if is_normalized_name(canonicalize_name(name)) and _is_version(version)
    }


def _is_version(text: str) -> bool:
    try:
        Version(text)
    except InvalidVersion:
        return False
    return True
