"""Kinetic's own distributions in a lock: wheels of the client's installation, never packages of an index."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kinetic_images.dependencies import OWN_NAMES, Dependencies
from kinetic_images.wheels import installed_own_names, own_closure, own_wheels

FOLDER: Final = ("cache", "wheels")
"""The folder in a home of wheels that are built from installed packages, as parts of its path."""


class InstalledWheels(Mapping[str, Path]):
    """The wheels of Kinetic's installed distributions, by name; each is built in *folder* when it is looked up."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __getitem__(self, name: str) -> Path:
        if name not in OWN_NAMES or name not in installed_own_names():
            raise KeyError(name)
        (wheel,) = own_wheels(self._folder, [name])
        return wheel

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(installed_own_names()))

    def __len__(self) -> int:
        return len(installed_own_names())


@dataclass(frozen=True)
class OwnWheels:
    """Wheels on this machine, as in `LockRequest`."""

    own: Mapping[str, Path] = field(default_factory=dict)
    """Those that the project requires, by requirement (name and extras)."""
    fallback: Mapping[str, Path] = field(default_factory=dict)
    """Those that another package may require, by name."""


def own_wheels_of(dependencies: Dependencies, home: Path) -> OwnWheels:
    """Return the wheels of Kinetic's distributions that *dependencies* and others may require, in *home*.

    Raises:
        DependencyError: A distribution that they name is not installed here.
    """
    folder = home.joinpath(*FOLDER)
    extras: dict[str, set[str]] = {}
    for requirement in dependencies.own:
        extras.setdefault(requirement.name, set()).update(requirement.extras)
    closure = own_closure(extras)
    names = (f"{name}[{','.join(chosen)}]" if chosen else name for name, chosen in closure.items())
    own = dict(zip(names, own_wheels(folder, closure), strict=True))
    return OwnWheels(own, InstalledWheels(folder))
