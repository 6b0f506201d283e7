"""Plan of an image's layers: which packages share one, and the key that names its content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kinetic_images.builders.image_layout import LAYER_PREFIX
from kinetic_images.builders.layers.conversion import VERSION
from kinetic_images.lock.packages import LockedPackage
from kinetic_images.recipe import LAYOUT

LARGE: Final = 1_000_000
"""The size in bytes from which on a wheel has its own layer."""
MOST_OWN: Final = 60
"""The most layers of our own; more large wheels share a layer with the small ones."""
MOST_LAYERS: Final = 120
"""The most layers of an image, those of its base included. docker 20.10 fails at 126."""


@dataclass(frozen=True, kw_only=True)
class PlannedLayer:
    """A layer of packages."""

    packages: tuple[LockedPackage, ...]
    key: str
    """The digest of everything that determines the layer's content."""

    @property
    def title(self) -> str:
        """The layer in words: `numpy 2.4.6`, or `31 packages`."""
        if len(self.packages) == 1:
            return f"{self.packages[0].name} {self.packages[0].version}".rstrip()
        return f"{len(self.packages)} packages"


def plan_layers(
    packages: Iterable[LockedPackage],
    sizes: Mapping[str, int],
    *,
    room: int,
    bytecode: str | None,
) -> tuple[PlannedLayer, ...]:
    """Distribute *packages* over at most *room* layers, the lowest first.

    A large wheel has its own layer; the rest share one. The largest wheels come first, and the shared
    layer last: nodes unpack again what lies above a changed layer, and small packages change most often.

    Args:
        sizes: The sizes of the wheels in bytes, by SHA-256. A wheel without a size counts as small.
        room: How many layers the image may have besides those of its base; at least one.
        bytecode: The kind of bytecode that the layers contain; None: no bytecode.
    """
    wheels = sorted({package.sha256: package for package in packages}.values())
    large = sorted(
        (package for package in wheels if sizes.get(package.sha256, 0) >= LARGE),
        key=lambda package: (-sizes[package.sha256], package),
    )
    own = large if len(large) == len(wheels) and len(large) <= room else large[: max(room - 1, 0)]
    shared = tuple(package for package in wheels if package not in own)
    groups = [(package,) for package in own] + ([shared] if shared else [])
    return tuple(
        PlannedLayer(packages=group, key=layer_key(group, bytecode=bytecode)) for group in groups
    )


def room_above(base_layers: int) -> int:
    """Return how many layers of packages fit above *base_layers*, with one more for other files."""
    return min(MOST_OWN, MOST_LAYERS - base_layers - 1)


def layer_key(packages: Iterable[LockedPackage], *, bytecode: str | None) -> str:
    """Return the digest of everything that determines the content of the layer of *packages*."""
    # The name of the file is an ingredient: headers are placed by it.
    wheels = [[package.sha256, package.file] for package in packages]
    text = json.dumps([VERSION, LAYOUT, LAYER_PREFIX, bytecode, wheels])
    return hashlib.sha256(text.encode()).hexdigest()
