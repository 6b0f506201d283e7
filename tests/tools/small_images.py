"""Small images in a registry, made by hand."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import sys
import tarfile
from collections.abc import Callable, Sequence
from typing import Any

from kinetic_images.registry.oci import digest_of
from kinetic_images.registry.registry import Registry

PYTHON = "{}.{}".format(*sys.version_info)
MANIFEST = "application/vnd.oci.image.manifest.v1+json"


def push_image(
    host: str,
    registry: Registry,
    *,
    name: str = "base",
    tag: str = "1",
    files: Sequence[str] = ("etc/base", "usr/bin/python3"),
    damaged: Callable[[bytes], bytes] = lambda data: data,
    **config: Any,
) -> str:
    """Push an image with one small layer that contains *files*; return its address. *damaged* changes the layer."""
    repository = registry.repository(f"{host}/{name}")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for file in files:
            archive.addfile(tarfile.TarInfo(file))
    plain = packed.getvalue()
    layer = damaged(gzip.compress(plain, mtime=0))
    data = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Env": [f"PYTHON_VERSION={PYTHON}.1", "PATH=/usr/bin"]} | config,
        "rootfs": {
            "type": "layers",
            "diff_ids": [f"sha256:{hashlib.sha256(plain).hexdigest()}"],
        },
    }
    encoded = json.dumps(data).encode()
    for blob in (layer, encoded):
        repository.upload(
            digest_of(blob), len(blob), lambda blob=blob: io.BytesIO(blob), lambda _: None
        )
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": {
            "mediaType": "application/vnd.oci.image.config.v1+json",
            "digest": digest_of(encoded),
            "size": len(encoded),
        },
        "layers": [
            {
                "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip",
                "digest": digest_of(layer),
                "size": len(layer),
            }
        ],
    }
    repository.put_manifest(tag, json.dumps(manifest).encode(), MANIFEST)
    return f"{host}/{name}:{tag}"
