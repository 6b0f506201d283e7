"""Files in an image, as far as the layers of a small image show them."""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Iterator
from contextlib import closing
from typing import BinaryIO, Final

from kinetic_images.registry.oci import Descriptor
from kinetic_images.registry.repository import RemoteImage, Repository

_LARGEST_IMAGE: Final = 32 << 20
"""The most compressed bytes that are downloaded. Images of Linux distributions without Python are smaller."""
_LARGEST_LAYER: Final = 1 << 30
"""The most uncompressed bytes of a layer that are read."""


def has_program(image: RemoteImage, repository: Repository, name: str) -> bool | None:
    """Return whether a file *name* is in a folder of *image*, whichever; None if that is not known.

    False is certain. The layers of a large image are not downloaded, so nothing is known of it.

    Raises:
        RegistryError: The registry cannot be queried, or returned other bytes.
    """
    layers = image.manifest.layers
    if sum(layer.size for layer in layers) > _LARGEST_IMAGE:
        return None
    try:
        found = any(
            path.rpartition("/")[2] == name
            for layer in reversed(layers)
            for path in _paths(layer, repository)
        )
    except (tarfile.TarError, zlib.error, EOFError):
        return None  # For instance another compression.
    return found


def _paths(layer: Descriptor, repository: Repository) -> Iterator[str]:
    with closing(repository.open_blob(layer.digest)) as stream, _opened(stream) as archive:
        for member in archive:
            if member.offset_data + member.size > _LARGEST_LAYER:
                raise tarfile.ReadError("The layer is too large to be read.")
            yield member.name


def _opened(stream: BinaryIO) -> tarfile.TarFile:
    return tarfile.open(fileobj=stream, mode="r|*")
