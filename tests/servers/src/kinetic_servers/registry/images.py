"""Small images for tests, as a registry stores them."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kinetic_images.registry.oci import (
    DOCKER_CONFIG,
    DOCKER_INDEX,
    DOCKER_LAYER,
    DOCKER_MANIFEST,
    OCI_CONFIG,
    OCI_INDEX,
    OCI_LAYER,
    OCI_MANIFEST,
    Descriptor,
    Index,
    Manifest,
    Platform,
    digest_of,
)
from kinetic_images.registry.repository import Repository
from kinetic_servers.registry.storage import Storage, StoredManifest

_DOCKER = (DOCKER_CONFIG, DOCKER_LAYER, DOCKER_MANIFEST, DOCKER_INDEX)
_OCI = (OCI_CONFIG, OCI_LAYER, OCI_MANIFEST, OCI_INDEX)


@dataclass(frozen=True)
class SmallImage:
    """An image of one architecture: its manifest, and the blobs that it names."""

    manifest: StoredManifest
    blobs: tuple[bytes, ...]


def layer_of(files: Mapping[str, bytes]) -> tuple[bytes, str]:
    """Return a layer with *files*, path → content, and the digest of its uncompressed content."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path, content in files.items():
            member = tarfile.TarInfo(path.lstrip("/"))
            member.size, member.mode = len(content), 0o644
            archive.addfile(member, io.BytesIO(content))
    data = buffer.getvalue()
    return gzip.compress(data, mtime=0), digest_of(data)


def small_image(
    architecture: str,
    settings: Mapping[str, Any],
    layers: Sequence[Mapping[str, bytes]],
    *,
    docker: bool = False,
    damaged: Callable[[bytes], bytes] = bytes,
) -> SmallImage:
    """Return an image with these *settings* in its configuration; *damaged* changes its compressed layers."""
    config_type, layer_type, manifest_type, _ = _DOCKER if docker else _OCI
    made = [layer_of(files) for files in layers]
    config = {
        "architecture": architecture,
        "os": "linux",
        "config": dict(settings),
        "rootfs": {"type": "layers", "diff_ids": [diff_id for _, diff_id in made]},
        "history": [{"created_by": "small_image"} for _ in made],
    }
    blobs = (json.dumps(config).encode(), *(damaged(content) for content, _ in made))
    described = [
        Descriptor(media_type=kind, digest=digest_of(data), size=len(data))
        for kind, data in zip((config_type, *[layer_type] * len(made)), blobs, strict=True)
    ]
    manifest = Manifest(
        media_type=manifest_type, config=described[0], layers=tuple(described[1:])
    ).render()
    return SmallImage(StoredManifest(manifest_type, manifest), blobs)


def add_image(
    storage: Storage,
    repository: str,
    tag: str,
    *,
    architectures: Sequence[str] = ("amd64",),
    settings: Mapping[str, Any] = {},
    layers: Sequence[Mapping[str, bytes]] = ({"hello.txt": b"hello\n"},),
    docker: bool = False,
) -> str:
    """Store an image, for several *architectures* an index, and return its digest.

    *settings* are those of its configuration, such as `{"Env": ["A=1"]}`. With *docker*, the formats are docker's.
    """
    described = []
    for architecture in architectures:
        image = small_image(architecture, settings, layers, docker=docker)
        for data in image.blobs:
            storage.add_blob(repository, data)
        stored = image.manifest
        storage.put_manifest(repository, tag if len(architectures) == 1 else stored.digest, stored)
        if len(architectures) == 1:
            return stored.digest
        platform = Platform(architecture=architecture, os="linux")
        described.append(
            Descriptor(
                media_type=stored.media_type,
                digest=stored.digest,
                size=len(stored.data),
                platform=platform,
            )
        )
    kind = (_DOCKER if docker else _OCI)[-1]
    index = StoredManifest(kind, Index(media_type=kind, manifests=tuple(described)).render())
    storage.put_manifest(repository, tag, index)
    return index.digest


def push(repository: Repository, data: bytes, advances: list[int] | None = None) -> str:
    """Upload *data* as a blob, and return its digest."""
    counted = [] if advances is None else advances
    repository.upload(digest_of(data), len(data), lambda: io.BytesIO(data), counted.append)
    return digest_of(data)


def push_image(
    repository: Repository, tag: str, architecture: str = "amd64", *, docker: bool = False
) -> str:
    """Push a small image, and return the digest of its manifest."""
    settings = {"Env": ["PATH=/bin", "A=b=c"], "User": "7", "Entrypoint": ["/run"]}
    layers = [{"hello.txt": architecture.encode()}]
    image = small_image(architecture, settings, layers, docker=docker)
    for data in image.blobs:
        push(repository, data)
    return repository.put_manifest(tag, image.manifest.data, image.manifest.media_type)
