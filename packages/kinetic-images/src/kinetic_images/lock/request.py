"""Lock requests: what a lock is made from, and the digest under which it is cached."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement as Parsed
from packaging.utils import canonicalize_name

from kinetic_images.declared.requirements import Requirement
from kinetic_images.dependencies import Dependencies
from kinetic_images.lock.project_locks import ProjectLock
from kinetic_images.lock.pylock import public_text
from kinetic_images.targets import Target

_FORMAT: Final = 1


@dataclass(frozen=True, kw_only=True)
class LockRequest:
    """Everything that decides which packages a lock names, except the contents of indexes."""

    dependencies: Dependencies
    """What the project declares. Requirements whose marker is false on the target are left out already."""
    replaced: tuple[Requirement, ...] = ()
    """Requirements of the project that *additions* replace; messages name their lines."""
    target: Target | None
    """Where the packages will be installed; None: on this machine, by *interpreter*."""
    interpreter: str = ""
    """The Python of this process or one that shares its version and platform, if there is no target."""
    python: str
    """The version of Python: `3.11`, or `3.11.7` for an interpreter on this machine."""
    platform: str
    """The platform, as in `Dependencies.for_target`."""
    additions: tuple[str, ...] = ()
    """Requirements that Kinetic adds."""
    preferences: tuple[str, ...] = ()
    """Requirements that Kinetic adds, without their version if a dependency requires another one."""
    preferred: Mapping[str, str] = field(default_factory=dict)
    """Versions by name that are chosen if the requirements leave a choice."""
    own: Mapping[str, Path] = field(default_factory=dict)
    """Wheels on this machine that Kinetic adds, by requirement (name and extras)."""
    fallback: Mapping[str, Path] = field(default_factory=dict)
    """Wheels by name that are installed only if a package requires them: never those of an index.

    A lookup may build the wheel, so it is for what is certainly needed.
    """
    locked: ProjectLock | None = None
    """The project's own lock, whose versions are kept."""

    @property
    def declared(self) -> Dependencies:
        """The dependencies as the project declares them, for messages."""
        requirements = (*self.dependencies.requirements, *self.replaced)
        return replace(self.dependencies, requirements=requirements)

    @property
    def ingredients(self) -> dict[str, str]:
        """What the lock depends on, by name."""
        return {
            "requirements": self.declared.digest(self.platform, self.python),
            "lock of the project": self.locked.digest if self.locked else "",
            "packages that Kinetic adds": json.dumps(
                [
                    sorted(map(public_text, self.additions)),
                    sorted(map(public_text, self.preferences)),
                    # A wheel's folder is named by the digest of the wheel.
                    sorted((name, path.parent.name) for name, path in self.own.items()),
                ]
            ),
            "Python": self.python,
            "platform": self.target.platform if self.target else self.platform,
            **(
                {"packages of the base image": json.dumps(sorted(self.preferred.items()))}
                if self.preferred
                else {}
            ),
        }

    @property
    def digest(self) -> str:
        """The digest of everything that decides on the lock; it contains no credentials."""
        text = json.dumps([_FORMAT, self.ingredients], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


def requirement_name(text: str) -> str:
    """Return the canonical name in the requirement *text*."""
    return str(canonicalize_name(Parsed(text).name))
