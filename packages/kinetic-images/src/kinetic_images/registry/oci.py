"""Manifests, indexes and configurations of images, in the formats of docker and OCI."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import msgspec

from kinetic_images.errors import InvalidImageError
from kinetic_images.registry.names import is_digest

DOCKER_MANIFEST: Final = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_INDEX: Final = "application/vnd.docker.distribution.manifest.list.v2+json"
DOCKER_CONFIG: Final = "application/vnd.docker.container.image.v1+json"
DOCKER_LAYER: Final = "application/vnd.docker.image.rootfs.diff.tar.gzip"
OCI_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
OCI_INDEX: Final = "application/vnd.oci.image.index.v1+json"
OCI_CONFIG: Final = "application/vnd.oci.image.config.v1+json"
OCI_LAYER: Final = "application/vnd.oci.image.layer.v1.tar+gzip"

MANIFESTS: Final = (DOCKER_MANIFEST, OCI_MANIFEST)
INDEXES: Final = (DOCKER_INDEX, OCI_INDEX)

_BASELINES: Final = {"amd64": ("", "v1"), "arm64": ("", "v8")}
"""Variants that every processor of an architecture runs."""

_T = TypeVar("_T")


def digest_of(data: bytes) -> str:
    """Return the digest of *data*: `sha256:…`."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


class Platform(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A kind of machine, as an index names it."""

    architecture: str
    os: str
    variant: str = ""

    def __str__(self) -> str:
        return f"{self.os}/{self.architecture}" + (f"/{self.variant}" if self.variant else "")


class Descriptor(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A blob or manifest: its type, digest and size in bytes."""

    media_type: str
    digest: str
    size: int
    platform: Platform | None = None
    urls: tuple[str, ...] = ()
    annotations: dict[str, str] = {}

    def __post_init__(self) -> None:
        if not is_digest(self.digest):
            raise ValueError(f"{self.digest[:100]!r} is no SHA-256 digest")
        if self.size < 0:
            raise ValueError(f"a size is negative: {self.size}")


class _Document(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    schema_version: int = 2
    media_type: str

    def render(self) -> bytes:
        """Return the bytes of the document, always the same ones for the same content."""
        data = msgspec.to_builtins(self)
        # Defaults are left out, but readers need these two.
        data |= {"schemaVersion": 2, "mediaType": self.media_type}
        return json.dumps(data, separators=(",", ":"), sort_keys=True).encode()


class Manifest(_Document, frozen=True, kw_only=True):
    """The manifest of an image: its configuration and its layers, the lowest first."""

    media_type: str = OCI_MANIFEST
    config: Descriptor
    layers: tuple[Descriptor, ...]


class Index(_Document, frozen=True, kw_only=True):
    """The manifests of one image for several platforms."""

    media_type: str = OCI_INDEX
    manifests: tuple[Descriptor, ...]

    def choose(self, architecture: str) -> Descriptor | None:
        """Return the manifest for `linux/ARCHITECTURE`; None if there is none.

        The variant that the most processors run is preferred.
        """
        baseline = _BASELINES.get(architecture, ("",))
        fitting = [
            (each.platform.variant not in baseline, each.platform.variant, number)
            for number, each in enumerate(self.manifests)
            if each.platform is not None
            and (each.platform.os, each.platform.architecture) == ("linux", architecture)
        ]
        return self.manifests[min(fitting)[2]] if fitting else None

    @property
    def platforms(self) -> tuple[str, ...]:
        """The platforms that it has images for, such as `linux/amd64`."""
        found = (str(each.platform) for each in self.manifests if each.platform is not None)
        # Attestations of builds are listed as images of an unknown platform.
        return tuple(dict.fromkeys(name for name in found if not name.startswith("unknown/")))


@dataclass(frozen=True)
class ImageConfig:
    """The configuration of an image. *raw* has everything that the image's author wrote."""

    raw: Mapping[str, Any] = field(repr=False)
    architecture: str
    os: str
    variant: str
    env: Mapping[str, str] = field(repr=False)
    """Environment variables."""
    labels: Mapping[str, str]
    diff_ids: tuple[str, ...]
    """The digests of the layers' uncompressed content, the lowest first."""
    history: tuple[Mapping[str, Any], ...] = field(repr=False)

    @property
    def platform(self) -> str:
        """The platform, such as `linux/amd64`."""
        return f"{self.os}/{self.architecture}" + (f"/{self.variant}" if self.variant else "")


def parse_manifest(data: bytes, media_type: str) -> Manifest | Index:
    """Read a manifest or an index; *media_type* is the `Content-Type` of the response.

    Raises:
        InvalidImageError: *data* is neither, or contradicts its type.
    """
    sent = media_type.partition(";")[0].strip().lower()
    found = _object(data, "manifest")
    named = found.get("mediaType")
    if named is not None and sent in (*MANIFESTS, *INDEXES) and named != sent:
        raise InvalidImageError(
            f"The manifest is sent as {sent!r}, but names {named!r} as its type."
        )
    kind = str(named or sent)
    if "manifests" in found and ("layers" in found or "config" in found):
        # https://github.com/advisories/GHSA-mc8v-mgrf-8f4m: each tool would see another image.
        raise InvalidImageError("The manifest is ambiguous: it is an image and an index at once.")
    if kind not in (*MANIFESTS, *INDEXES):
        # The type is optional in OCI's formats.
        kind = OCI_INDEX if "manifests" in found else OCI_MANIFEST if "layers" in found else kind
    if kind in INDEXES:
        return _converted({**found, "mediaType": kind}, Index, "index")
    if kind in MANIFESTS:
        return _converted({**found, "mediaType": kind}, Manifest, "manifest")
    raise InvalidImageError(
        f"The manifest is not one of an image: its type is {kind[:100]!r}.",
        hint="Check that the name is that of a container image, not of another artifact.",
    )


def parse_config(data: bytes) -> ImageConfig:
    """Read the configuration of an image.

    Raises:
        InvalidImageError: *data* is no such configuration.
    """
    raw = _object(data, "configuration")
    found = _converted(raw, _Config, "configuration")
    settings = found.config or _Settings()
    return ImageConfig(
        raw=raw,
        architecture=found.architecture,
        os=found.os,
        variant=found.variant or "",
        env=dict(entry.partition("=")[::2] for entry in settings.env or ()),
        labels=settings.labels or {},
        diff_ids=found.rootfs.diff_ids,
        history=found.history or (),
    )


class _Settings(msgspec.Struct, frozen=True, rename="pascal"):
    env: tuple[str, ...] | None = None
    labels: dict[str, str] | None = None


class _RootFs(msgspec.Struct, frozen=True):
    diff_ids: tuple[str, ...]


class _Config(msgspec.Struct, frozen=True):
    architecture: str
    os: str
    rootfs: _RootFs
    variant: str | None = None
    config: _Settings | None = None
    history: tuple[dict[str, Any], ...] | None = None


def _object(data: bytes, what: str) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidImageError(f"The {what} of the image is not valid JSON: {error}.") from error
    if not isinstance(found, dict):
        raise InvalidImageError(f"The {what} of the image is no JSON object.")
    return found


def _converted(found: Mapping[str, Any], kind: type[_T], what: str) -> _T:
    # `null` stands for an absent key.
    present = {key: value for key, value in found.items() if value is not None}
    try:
        return msgspec.convert(present, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise InvalidImageError(f"The {what} of the image is malformed: {error}.") from error
