"""Small images for tests, as a registry stores them."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
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
from kinetic_images.testing.registry.storage import Storage, StoredManifest


def layer_of(files: Mapping[str, bytes]) -> tuple[bytes, str]:
    """Return a layer with *files*, path → content, and the digest of its uncompressed content."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path, content in files.items():
            member = tarfile.TarInfo(path.lstrip("/"))
            member.size, member.mode = len(content), 0o644
            archive.addfile(member, io.BytesIO(content))
    data = buffer.getvalue()
    return gzip.compress(data, mtime=0), f"sha256:{hashlib.sha256(data).hexdigest()}"


def add_image(
    storage: Storage,
    repository: str,
    tag: str,
    *,
    architectures: Sequence[str] = ("amd64",),
    settings: Mapping[str, Any] | None = None,
    layers: Sequence[Mapping[str, bytes]] = ({"hello.txt": b"hello\n"},),
    docker: bool = False,
) -> str:
    """Store an image, for several *architectures* an index, and return its digest.

    *settings* are those of its configuration, such as `{"Env": ["A=1"]}`. With *docker*, the formats are docker's.
    """
    types = (DOCKER_CONFIG, DOCKER_LAYER, DOCKER_MANIFEST, DOCKER_INDEX)
    config_type, layer_type, manifest_type, index_type = (
        types if docker else (OCI_CONFIG, OCI_LAYER, OCI_MANIFEST, OCI_INDEX)
    )
    made = [layer_of(files) for files in layers]
    described = []
    for architecture in architectures:
        config = {
            "architecture": architecture,
            "os": "linux",
            "config": dict(settings or {}),
            "rootfs": {"type": "layers", "diff_ids": [diff_id for _, diff_id in made]},
            "history": [{"created_by": "add_image"} for _ in made],
        }
        data = json.dumps(config).encode()
        storage.add_blob(repository, data)
        for content, _ in made:
            storage.add_blob(repository, content)
        manifest = Manifest(
            media_type=manifest_type,
            config=Descriptor(media_type=config_type, digest=digest_of(data), size=len(data)),
            layers=tuple(
                Descriptor(media_type=layer_type, digest=digest_of(content), size=len(content))
                for content, _ in made
            ),
        ).render()
        single = len(architectures) == 1
        stored = StoredManifest(manifest_type, manifest)
        storage.put_manifest(repository, tag if single else stored.digest, stored)
        if single:
            return stored.digest
        described.append(
            Descriptor(
                media_type=manifest_type,
                digest=stored.digest,
                size=len(manifest),
                platform=Platform(architecture=architecture, os="linux"),
            )
        )
    index = StoredManifest(
        index_type, Index(media_type=index_type, manifests=tuple(described)).render()
    )
    storage.put_manifest(repository, tag, index)
    return index.digest
