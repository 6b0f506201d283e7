"""`LayersBuilder`: appends layers of packages to the base image, in the registry."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from kinetic_images.builders.builder import BuildReports
from kinetic_images.builders.image_layout import BIN, DEFAULT_PATH, path_files
from kinetic_images.builders.layers.conversion import bytecode_kind
from kinetic_images.builders.layers.layer_file import LayerBlob
from kinetic_images.builders.layers.plan import MOST_LAYERS, plan_layers, room_above
from kinetic_images.builders.layers.transfer import Transfer
from kinetic_images.errors import BuildError
from kinetic_images.recipe import Recipe
from kinetic_images.registry.names import parse_reference
from kinetic_images.registry.oci import (
    DOCKER_LAYER,
    DOCKER_MANIFEST,
    OCI_LAYER,
    Descriptor,
    ImageConfig,
    Manifest,
    digest_of,
)
from kinetic_images.registry.registry import Registry
from kinetic_images.registry.repository import RemoteImage
from kinetic_images.wheel_files import WheelFiles
from kinetic_payload.threads import cores, parallel_map

_EPOCH: Final = "1970-01-01T00:00:00Z"
_OUTDATED: Final = ("container", "container_config", "docker_version", "id", "parent")
"""Keys in which old versions of docker describe the container that a layer was made in."""


_REQUESTS: Final = 8


class LayersBuilder:
    """Builds images without a program that builds images: layers are made here and uploaded.

    Files are kept in *cache*: records of layers, and the layers that are being written or uploaded. *processes*
    is the number of processes that write layers.
    """

    name: Literal["layers"] = "layers"

    def __init__(
        self,
        registry: Registry,
        wheels: WheelFiles,
        cache: Path,
        *,
        processes: int | None = None,
    ) -> None:
        self._registry = registry
        self._wheels = wheels
        self._cache = cache
        self._processes = processes or cores()
        self._bases: dict[tuple[str, str], RemoteImage] = {}

    def obstacle(self, recipe: Recipe) -> str | None:
        """Return why layers cannot build *recipe*, as a sentence; None if they can.

        Raises:
            RegistryError: The base image cannot be read.
        """
        built = sorted(package for package in recipe.packages if not package.is_wheel)
        if built:
            names = ", ".join(f"{package.name} {package.version}".rstrip() for package in built)
            return f"Layers are made of wheels only, and these packages have none: {names}."
        base = self._base(recipe)
        count = len(base.manifest.layers)
        if room_above(count) < 1:
            return (
                f"The base image {recipe.base} has {count} layers, and an image with more than "
                f"{MOST_LAYERS} does not run everywhere."
            )
        separate = base.config.env.get("VIRTUAL_ENV") or base.config.env.get("CONDA_PREFIX")
        if separate:
            return (
                f"The base image {recipe.base} has a Python environment of its own, {separate}, "
                "in which layers are not found."
            )
        return None

    def check(self, recipe: Recipe, image: str) -> None:
        """Refuse a repository to which nothing can be pushed.

        Raises:
            RegistryError: The registry says why.
        """
        del recipe  # Its wheels may be private: this process has the credentials.
        self._registry.repository(image).check_push()

    def build(self, recipe: Recipe, image: str, reports: BuildReports) -> str:
        """Build *recipe*, push it as *image* (`HOST/PATH:TAG`), and return its digest (`sha256:…`).

        The tag is written last: if this process ends early, the tag is absent or correct. If the tag
        exists by then, its image is adopted.

        Raises:
            BuildError: There is an obstacle, or a wheel cannot be installed.
            DownloadError: A wheel cannot be downloaded.
            RegistryError: The base cannot be read, or the image cannot be pushed.
        """
        target = parse_reference(image)
        obstacle = self.obstacle(recipe)
        if obstacle is not None:
            raise BuildError(obstacle, hint="Choose another builder with KINETIC_IMAGE_BUILDER.")
        base = self._base(recipe)
        repository = self._registry.repository(target)
        transfer = Transfer(
            repository=repository,
            wheels=self._wheels,
            cache=self._cache,
            processes=self._processes,
            reports=reports,
        )
        transfer.ensure_base(base.manifest.layers, self._registry.repository(recipe.base))
        layers = self._package_layers(recipe, base, transfer)
        placed = path_files(recipe.target.python) | dict(recipe.files)
        files = {path.removeprefix("/"): content for path, content in placed.items()}
        layers.append(("files", transfer.ensure_files(files)))
        config = config_of(base.config, layers, recipe.labels)
        transfer.ensure_data(digest_of(config), config)
        # Another build may have been faster.
        existing = repository.digest(target.version)
        if existing is not None:
            return existing
        manifest = manifest_of(base.manifest, config, layers)
        return repository.put_manifest(target.version, manifest.render(), manifest.media_type)

    def _base(self, recipe: Recipe) -> RemoteImage:
        """Return the base image. It is read once, because registries count requests."""
        architecture = recipe.target.architecture
        key = recipe.base, architecture
        if key not in self._bases:
            repository = self._registry.repository(recipe.base)
            version = parse_reference(recipe.base).version
            self._bases[key] = repository.image(version, architecture)
        return self._bases[key]

    def _package_layers(
        self, recipe: Recipe, base: RemoteImage, transfer: Transfer
    ) -> list[NamedLayer]:
        """Bring the layers of packages into the repository, and return them with their titles."""
        if not recipe.packages:
            return []
        self._wheels.collect_leftovers()
        kind = bytecode_kind(recipe.target.python)
        if kind is None:
            transfer.reports.line(
                f"The image has no bytecode, because this Python is not {recipe.target.python}: "
                "imports take longer at each start."
            )
        found = parallel_map(self._wheels.size, recipe.packages, threads=_REQUESTS)
        sizes = {
            package.sha256: size
            for package, size in zip(recipe.packages, found, strict=True)
            if size is not None
        }
        room = room_above(len(base.manifest.layers))
        planned = plan_layers(recipe.packages, sizes, room=room, bytecode=kind)
        blobs = transfer.ensure_packages(planned, sizes, bytecode=kind is not None)
        return [(layer.title, blob) for layer, blob in zip(planned, blobs, strict=True)]


NamedLayer = tuple[str, LayerBlob]
"""A layer of the image, after its title for the image's history."""


def config_of(base: ImageConfig, layers: Sequence[NamedLayer], labels: Mapping[str, str]) -> bytes:
    """Return the configuration of the image with *layers* above *base*.

    It is the base's, with more labels, our programs on `PATH`, and the base's time of creation: the same
    recipe makes the same bytes.
    """
    raw: dict[str, Any] = {key: value for key, value in base.raw.items() if key not in _OUTDATED}
    settings: dict[str, Any] = dict(raw.get("config") or {})
    variables = {**base.env, "PATH": f"{BIN}:{base.env.get('PATH') or DEFAULT_PATH}"}
    settings["Env"] = [f"{name}={value}" for name, value in variables.items()]
    settings["Labels"] = {**(settings.get("Labels") or {}), **labels}
    created = raw.get("created") or _EPOCH
    diff_ids = [*base.diff_ids, *(blob.diff_id for _, blob in layers)]
    raw |= {
        "config": settings,
        "created": created,
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
    }
    history = [
        {"created": created, "created_by": f"kinetic-images: {title}"} for title, _ in layers
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
                Descriptor(media_type=kind, digest=blob.digest, size=blob.size)
                for _, blob in layers
            ),
        ),
    )
