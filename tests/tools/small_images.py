"""A small base image in a registry."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from kinetic_images.registry.registry import Registry
from kinetic_servers.registry.images import push, small_image

PYTHON = "{}.{}".format(*sys.version_info)


def push_image(
    host: str,
    registry: Registry,
    *,
    name: str = "base",
    tag: str = "1",
    files: Sequence[str] = ("etc/base", "usr/bin/python3"),
    damaged: Callable[[bytes], bytes] = bytes,
    **config: Any,
) -> str:
    """Push an image with one small layer that contains *files*; return its address. *damaged* changes the layer."""
    repository = registry.repository(f"{host}/{name}")
    settings = {"Env": [f"PYTHON_VERSION={PYTHON}.1", "PATH=/usr/bin"], **config}
    image = small_image("amd64", settings, [dict.fromkeys(files, b"")], damaged=damaged)
    for blob in image.blobs:
        push(repository, blob)
    repository.put_manifest(tag, image.manifest.data, image.manifest.media_type)
    return f"{host}/{name}:{tag}"
