"""Kinetic's own distributions in a lock: wheels of the client's installation, never packages of an index."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kinetic_images.dependencies import Dependencies
from kinetic_images.wheels import installed_own_names, own_closure, own_wheels

FOLDER: Final = ("cache", "wheels")
"""The folder in a home of wheels that are built from installed packages, as parts of its path."""


@dataclass(frozen=True)
class OwnWheels:
    """Wheels on this machine, as in `LockRequest`."""

    own: Mapping[str, Path] = field(default_factory=dict)
    """Those that the project requires, by requirement (name and extras)."""
    fallback: Mapping[str, Path] = field(default_factory=dict)
    """Those that another package may require, by name."""


def own_wheels_of(dependencies: Dependencies, home: Path) -> OwnWheels:
    """Build the wheels of Kinetic's distributions that *dependencies* and others may require, in *home*.

    Raises:
        DependencyError: A distribution that they name is not installed here.
    """
    folder = home.joinpath(*FOLDER)
    own: dict[str, Path] = {}
    if dependencies.own:
        extras: dict[str, set[str]] = {}
        for requirement in dependencies.own:
            extras.setdefault(requirement.name, set()).update(requirement.extras)
        closure = own_closure({name: tuple(sorted(names)) for name, names in extras.items()})
        wheels = own_wheels(folder, closure)
        for (name, chosen), wheel in zip(closure.items(), wheels, strict=True):
            own[f"{name}[{','.join(chosen)}]" if chosen else name] = wheel
    names = sorted(installed_own_names())
    return OwnWheels(own, dict(zip(names, own_wheels(folder, names), strict=True)))
