"""Images that the user names: looked at before they are used."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kinetic_images.bases import PROGRAM, python_of, without_python
from kinetic_images.errors import (
    RegistryError,
    RegistryLoginError,
    RegistryPermissionError,
    RegistryUnavailableError,
)
from kinetic_images.image_files import has_program
from kinetic_images.kept_records import find_record, keep_record
from kinetic_images.registry.names import parse_reference
from kinetic_images.registry.registry import Registry
from kinetic_images.targets import Machine, Target


@dataclass(frozen=True)
class InspectedImage:
    """An image that the user names."""

    reference: str
    """By digest, if the registry could be queried; otherwise as the user wrote it."""
    notes: tuple[str, ...] = ()
    """Sentences for the user."""


_NEEDED: Final = "python3, cloudpickle and google-cloud-storage"


def inspect_image(
    uri: str, *, python: str, machine: Machine, registry: Registry, home: Path
) -> InspectedImage:
    """Look at the image *uri*, which will run a function of Python *python* (`3.11`) on *machine*.

    What was seen is kept in *home*: the next time, only the digest of the tag is asked for, and nothing if
    *uri* contains the digest.

    If the registry cannot be queried from here, the image is used as it is named: the nodes of a cluster may
    have access to it.

    Raises:
        InvalidReferenceError: *uri* is not the address of an image.
        ImageNotFoundError: The registry has no such image, or none for the machine, or it has no `python3`.
        RegistryError: The image is malformed.
    """
    name = parse_reference(uri)
    architecture = Target(python=python, machine=machine).architecture
    repository = registry.repository(name)
    try:
        digest = name.digest or repository.digest(name.version)
        seen = None
        if digest is not None:
            seen = find_record(_path(home, f"{name.repository}@{digest}", architecture))
        if digest is None or seen is None or "python" not in seen:
            image = repository.image(digest or name.version, architecture)
            digest, seen = image.index_digest or image.digest, {"python": python_of(image.config)}
            if seen["python"] is None and has_program(image, repository, PROGRAM) is False:
                raise without_python(uri)
            keep_record(_path(home, f"{name.repository}@{digest}", architecture), seen)
    except (RegistryLoginError, RegistryPermissionError, RegistryUnavailableError) as error:
        return InspectedImage(uri, (_unknown(uri, error),))
    return InspectedImage(str(name.at(digest)), _notes(uri, seen["python"], python))


def _notes(uri: str, found: str | None, python: str) -> tuple[str, ...]:
    if found is None:
        return (f"The image {uri} does not say which Python it has. It must have {_NEEDED}.",)
    if found == python:
        return ()
    return (
        f"The image {uri} says that it has Python {found}, and this process runs Python {python}: "
        "a function pickled here may not load there.",
    )


def _path(home: Path, image: str, architecture: str) -> Path:
    key = hashlib.sha256(f"{image} {architecture}".encode()).hexdigest()
    return home / "cache" / "images" / "inspected" / f"{key}.json"


def _unknown(uri: str, error: RegistryError) -> str:
    return f"The image {uri} could not be checked from here, and is used as it is named. {error.message}"
