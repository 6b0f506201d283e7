"""Recipes: everything that an image is made of, and the tag that follows from it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kinetic_images.lock.packages import LockedPackage, packages_digest
from kinetic_images.targets import Target

LAYOUT: Final = 2
"""The version of the image's layout: where files are placed, and how. A change makes new images."""

RUNNER_PATH: Final = "/app/remote_runner.py"
_MOST: Final = 5
"""How many packages a message names."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything that an image is made of."""

    target: Target
    base: str
    """The base image by digest: `HOST/PATH@sha256:…`."""
    packages: tuple[LockedPackage, ...] = ()
    """The packages to install, wheels of Kinetic's own distributions included."""
    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """More files: absolute path in the image → content. They belong to root, with mode 0644."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of the image. They describe it, and do not change the tag."""

    @property
    def ingredients(self) -> dict[str, str]:
        """The digest or name of each ingredient, for comparison with an earlier image."""
        return {
            "layout": str(LAYOUT),
            "base image": self.base.rpartition("@")[2],
            "Python": self.target.python,
            "platform": self.target.platform,
            "packages": packages_digest(self.packages),
            **{
                f"file {path}": hashlib.sha256(content).hexdigest()
                for path, content in sorted(self.files.items())
            },
        }

    @property
    def tag(self) -> str:
        """The tag of the image. Two recipes have one tag if, and only if, they make the same image."""
        text = json.dumps(self.ingredients, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:40]

    @property
    def record(self) -> dict[str, Any]:
        """What `changed_since` compares a later recipe with."""
        versions = {package.name: package.version for package in self.packages}
        return {"ingredients": self.ingredients, "packages": versions}

    def changed_since(self, record: Mapping[str, Any]) -> str:
        """Return a sentence on what differs between this recipe and the last image, whose `record` is given."""
        old, before = record.get("ingredients"), record.get("packages")
        if not isinstance(old, dict) or not isinstance(before, dict):
            return "The registry has no image for these dependencies yet."
        new, after = self.record["ingredients"], self.record["packages"]
        changed = [name for name in {**new, **old} if old.get(name) != new.get(name)]
        if not changed:
            return "The registry no longer has the image for these dependencies."
        versions = [
            f"{name} {version} added"
            if name not in before
            else f"{name} {before[name]} → {version}"
            for name, version in after.items()
            if before.get(name) != version
        ]
        versions += [f"{name} removed" for name in before if name not in after]
        if len(versions) > _MOST:
            versions[_MOST:] = [f"{len(versions) - _MOST} more"]
        packages = f"packages ({', '.join(versions) or 'other files of the same versions'})"
        texts = [packages if name == "packages" else name for name in changed]
        return f"A new image is needed. Changed since the last one: {', '.join(texts)}."
