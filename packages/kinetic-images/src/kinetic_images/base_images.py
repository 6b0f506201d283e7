"""Base images for prebuilt mode: built under a digest's tag, then published under the tag that jobs look for."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from kinetic_images.bases import find_base
from kinetic_images.builders.builder import BuildReports
from kinetic_images.builders.dockerfile.container_build import ContainerBuilder
from kinetic_images.builders.dockerfile.folder_context import folder_context
from kinetic_images.ensure import ImageRequest, ImageServices, ensure_image
from kinetic_images.errors import RegistryError
from kinetic_images.registry.names import Reference, parse_reference
from kinetic_images.registry.registry import Registry

_TAG_LENGTH: Final = 40


@dataclass(frozen=True, kw_only=True)
class PublishedImage:
    """A base image in its repository."""

    address: str
    """`HOST/PATH:TAG`"""
    digest: str
    built_by: str | None
    """The builder, if this call built it."""
    changed: bool
    """Whether the tag was written; otherwise it was up to date."""
    notes: tuple[str, ...] = ()
    """Sentences for the user."""


def publish(request: ImageRequest, services: ImageServices, *, tag: str) -> PublishedImage:
    """Make sure that the image of *request* exists, and that *tag* of its repository names it.

    The image says in its labels what it contains. The tag changes only when the image is complete.

    Raises:
        KineticError: See `ensure_image`.
    """
    image = ensure_image(replace(request, lists_packages=True), services)
    name = parse_reference(request.repository).tagged(tag)
    digest = image.reference.rpartition("@")[2]
    return PublishedImage(
        address=str(name),
        digest=digest,
        built_by=image.built_by,
        changed=_move(services.registry, name, digest),
        notes=image.notes,
    )


def publish_dockerfile(
    dockerfile: Path,
    repository: str,
    builder: ContainerBuilder,
    registry: Registry,
    reports: BuildReports,
    *,
    tag: str,
    python: str,
    home: Path,
    rebuild: bool = False,
) -> PublishedImage:
    """Build the user's *dockerfile* with its folder, and publish it as *tag* of *repository*.

    The same files are built once; *rebuild* builds them again, for instance for a newer base. The tag does
    not change if the image has another Python than *python* (`3.11`).

    Raises:
        BuildInputError: The Dockerfile or its folder cannot be read.
        ImageNotFoundError: The image has another Python.
        BuildError: The build failed; the message contains the end of its log.
        RegistryError: The image cannot be pushed.
    """
    context = folder_context(dockerfile)
    built = context.digest[:_TAG_LENGTH] + (f"-{secrets.token_hex(4)}" if rebuild else "")
    source = parse_reference(repository).tagged(built)
    before = registry.repository(source).digest(built)
    digest = before or builder.build_context(context, str(source), reports, fresh=rebuild)
    name = parse_reference(repository).tagged(tag)
    found = find_base(str(name.at(digest)), python, "x86_64", registry, home)
    notes = []
    if not found.labelled:
        notes.append(
            f"The image does not say which Python it has; jobs assume {python}. Add to the Dockerfile: "
            f"LABEL kinetic.python={python}"
        )
    if found.packages is None:
        notes.append(
            "The image does not list its packages, so jobs install all that they need. Add to the Dockerfile: "
            'LABEL kinetic.packages="NAME==VERSION …"'
        )
    return PublishedImage(
        address=str(name),
        digest=digest,
        built_by=None if before else builder.name,
        changed=_move(registry, name, digest),
        notes=tuple(notes),
    )


def _move(registry: Registry, name: Reference, digest: str) -> bool:
    """Let the tag *name* point at the image *digest* of its repository; return whether it did not before."""
    repository = registry.repository(name)
    if repository.digest(name.version) == digest:
        return False
    manifest = repository.manifest(digest)
    if manifest is None:
        raise RegistryError(
            f"The image {name.at(digest)} was built, and is gone.",
            hint="A cleanup rule of the registry may have removed it. Build it again.",
        )
    repository.put_manifest(name.version, manifest.data, manifest.media_type)
    return True
