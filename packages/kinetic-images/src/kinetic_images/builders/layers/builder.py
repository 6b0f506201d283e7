"""`LayersBuilder`: appends layers of packages to the base image, in the registry."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

from kinetic_images.builders.builder import BuildReports
from kinetic_images.builders.layers.bytecode import bytecode_kind
from kinetic_images.builders.layers.image import NamedLayer, config_of, files_of, manifest_of
from kinetic_images.builders.layers.layer_records import LayerRecords
from kinetic_images.builders.layers.layout import separate_environment
from kinetic_images.builders.layers.plan import MOST_LAYERS, plan_layers, room_above
from kinetic_images.builders.layers.transfer import Transfer
from kinetic_images.errors import BuildError, InvalidReferenceError
from kinetic_images.recipe import Recipe
from kinetic_images.registry.names import parse_reference
from kinetic_images.registry.oci import digest_of
from kinetic_images.registry.registry import Registry
from kinetic_images.registry.repository import RemoteImage
from kinetic_images.wheel_files import WheelFiles
from kinetic_payload.threads import cores, parallel_map

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
        separate = separate_environment(base.config.env)
        if separate is not None:
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
        if target.tag is None or target.digest is not None:
            raise InvalidReferenceError(
                f"{image!r} does not name an image to push.", hint="Write HOST/PATH:TAG."
            )
        obstacle = self.obstacle(recipe)
        if obstacle is not None:
            raise BuildError(obstacle, hint="Choose another builder with KINETIC_IMAGE_BUILDER.")
        files = files_of(recipe)
        base = self._base(recipe)
        repository = self._registry.repository(target)
        transfer = Transfer(
            repository=repository,
            wheels=self._wheels,
            records=LayerRecords(self._cache / "records"),
            folder=self._cache / "partial",
            processes=self._processes,
            reports=reports,
        )
        transfer.ensure_base(base.manifest.layers, self._registry.repository(recipe.base))
        layers = self._package_layers(recipe, base, transfer)
        layers.append(NamedLayer(title="files", blob=transfer.ensure_files(files)))
        config = config_of(base.config, layers, recipe.labels)
        transfer.ensure_data(digest_of(config), config)
        # Another build may have been faster.
        existing = repository.digest(target.tag)
        if existing is not None:
            return existing
        manifest = manifest_of(base.manifest, config, layers)
        return repository.put_manifest(target.tag, manifest.render(), manifest.media_type)

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
        return [
            NamedLayer(title=layer.title, blob=blob)
            for layer, blob in zip(planned, blobs, strict=True)
        ]
