"""Images that the user names: looked at before they are used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kinetic_images.bases import python_of
from kinetic_images.errors import (
    RegistryError,
    RegistryLoginError,
    RegistryPermissionError,
    RegistryUnavailableError,
)
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


def inspect_image(uri: str, *, python: str, machine: Machine, registry: Registry) -> InspectedImage:
    """Look at the image *uri*, which will run a function of Python *python* (`3.11`) on *machine*.

    If the registry cannot be queried from here, the image is used as it is named: the nodes of a cluster may
    have access to it.

    Raises:
        InvalidReferenceError: *uri* is not the address of an image.
        ImageNotFoundError: The registry has no such image, or none for the machine.
        RegistryError: The image is malformed.
    """
    name = parse_reference(uri)
    architecture = Target(python=python, machine=machine).architecture
    try:
        image = registry.repository(name).image(name.version, architecture)
    except (RegistryLoginError, RegistryPermissionError, RegistryUnavailableError) as error:
        return InspectedImage(uri, (_unknown(uri, error),))
    found = python_of(image.config)
    notes: tuple[str, ...] = ()
    if found is None:
        notes = (f"The image {uri} does not say which Python it has. It must have {_NEEDED}.",)
    elif found != python:
        notes = (
            f"The image {uri} says that it has Python {found}, and this process runs Python {python}: "
            "a function pickled here may not load there.",
        )
    return InspectedImage(str(name.at(image.index_digest or image.digest)), notes)


def _unknown(uri: str, error: RegistryError) -> str:
    return f"The image {uri} could not be checked from here, and is used as it is named. {error.message}"
