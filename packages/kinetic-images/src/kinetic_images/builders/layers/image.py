"""The image that results: its configuration and its manifest, from those of the base."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kinetic_images.builders.layers.layer_file import LayerBlob
from kinetic_images.builders.layers.layout import WHITEOUT, environment, finder_files
from kinetic_images.errors import BuildError
from kinetic_images.recipe import Recipe
from kinetic_images.registry.oci import (
    DOCKER_LAYER,
    DOCKER_MANIFEST,
    OCI_LAYER,
    Descriptor,
    ImageConfig,
    Manifest,
    digest_of,
)

_EPOCH: Final = "1970-01-01T00:00:00Z"
_OUTDATED: Final = ("container", "container_config", "docker_version", "id", "parent")
"""Keys in which old versions of docker describe the container that a layer was made in."""


@dataclass(frozen=True, kw_only=True)
class NamedLayer:
    """A layer of the image, with its title for the image's history."""

    title: str
    blob: LayerBlob


def files_of(recipe: Recipe) -> dict[str, bytes]:
    """Return the files besides those of packages: path in the layer → content.

    Raises:
        BuildError: A path of the recipe is not absolute, or is not safe.
    """
    files = finder_files(recipe.target.python)
    for path, content in recipe.files.items():
        parts = path.split("/")
        unsafe = len(parts) < 2 or any(
            part in ("", ".", "..") or part.startswith(WHITEOUT) for part in parts[1:]
        )
        if parts[0] or unsafe or "\0" in path:
            raise BuildError(
                f"The file {path!r} cannot be placed in an image: its path is not absolute and plain.",
                hint="Write it as /FOLDER/FILE, without `.` and `..`.",
            )
        files[path[1:]] = content
    return files


def config_of(base: ImageConfig, layers: Sequence[NamedLayer], labels: Mapping[str, str]) -> bytes:
    """Return the configuration of the image with *layers* above *base*.

    It is the base's, with more labels, our programs on `PATH`, and the base's time of creation: the same
    recipe makes the same bytes.
    """
    raw: dict[str, Any] = {key: value for key, value in base.raw.items() if key not in _OUTDATED}
    settings: dict[str, Any] = dict(raw.get("config") or {})
    settings["Env"] = _changed(settings.get("Env") or (), environment(base.env))
    settings["Labels"] = {**(settings.get("Labels") or {}), **labels}
    created = raw.get("created") or _EPOCH
    diff_ids = [*base.diff_ids, *(layer.blob.diff_id for layer in layers)]
    raw |= {
        "config": settings,
        "created": created,
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
    }
    history = [
        {"created": created, "created_by": f"kinetic-images: {layer.title}"} for layer in layers
    ]
    filled = sum(not entry.get("empty_layer") for entry in base.history)
    # docker rejects a history that has another number of layers.
    raw["history"] = [*base.history, *history] if filled == len(base.diff_ids) else []
    return json.dumps(raw, sort_keys=True, separators=(",", ":")).encode()


def manifest_of(base: Manifest, config: bytes, layers: Iterable[NamedLayer]) -> Manifest:
    """Return the manifest of the image, in the format (docker's or OCI's) of its *base*."""
    kind = DOCKER_LAYER if base.media_type == DOCKER_MANIFEST else OCI_LAYER
    return Manifest(
        media_type=base.media_type,
        config=Descriptor(
            media_type=base.config.media_type, digest=digest_of(config), size=len(config)
        ),
        layers=(
            *base.layers,
            *(
                Descriptor(media_type=kind, digest=layer.blob.digest, size=layer.blob.size)
                for layer in layers
            ),
        ),
    )


def _changed(entries: Iterable[str], changes: Mapping[str, str]) -> list[str]:
    """Return the variables *entries* (`NAME=value`) with *changes*, in their order."""
    before = dict(entry.partition("=")[::2] for entry in entries)
    return [f"{name}={value}" for name, value in {**before, **changes}.items()]
