"""What builders need of a registry: which image a tag names."""

from __future__ import annotations

from typing import Protocol

from kinetic_images.errors import InvalidReferenceError


class Repository(Protocol):
    """The images of one path in a registry."""

    def digest(self, tag: str) -> str | None:
        """Return the digest of the image *tag*, or None if there certainly is none."""
        ...


class ImageLookup(Protocol):
    """Registries: `kinetic_images.registry` has them over HTTP."""

    def repository(self, name: str, /) -> Repository:
        """Return the repository `HOST/PATH`."""
        ...


def split_image(image: str) -> tuple[str, str]:
    """Return repository and tag of *image*, `HOST[:PORT]/PATH:TAG`.

    Raises:
        InvalidReferenceError: It has another form.
    """
    repository, colon, tag = image.rpartition(":")
    if not colon or "/" in tag or "/" not in repository or "@" in image or not tag:
        raise InvalidReferenceError(
            f"{image!r} is not an image with a tag.", hint="Write HOST/PATH:TAG."
        )
    return repository, tag


def existing_digest(registries: ImageLookup, image: str) -> str | None:
    """Return the digest of *image* (`HOST/PATH:TAG`) in its registry, or None if it does not exist.

    Raises:
        RegistryError: The registry cannot be queried.
    """
    repository, tag = split_image(image)
    return registries.repository(repository).digest(tag)
