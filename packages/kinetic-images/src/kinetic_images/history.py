"""The ingredients of a project's last image, to name what changed when the next one must be built."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kinetic_images.kept_records import find_record, keep_record
from kinetic_images.recipe import Recipe

_MOST: Final = 5
"""How many packages a message names."""


def changed_ingredients(last: Path, recipe: Recipe) -> str:
    """Return a sentence on what differs between *recipe* and the image that was recorded at *last*."""
    record = find_record(last) or {}
    before, packages = record.get("ingredients"), record.get("packages")
    if not isinstance(before, dict) or not isinstance(packages, dict):
        return "The registry has no image for these dependencies yet."
    after = recipe.ingredients
    changed = [name for name in after if before.get(name) != after[name]]
    changed += [name for name in before if name not in after]
    if not changed:
        return "The registry no longer has the image for these dependencies."
    versions = f"packages ({_packages(packages, recipe)})"
    texts = [versions if name == "packages" else name for name in changed]
    return f"A new image is needed. Changed since the last one: {', '.join(texts)}."


def remember(last: Path, recipe: Recipe) -> None:
    """Record the ingredients of *recipe* at *last*."""
    versions = {package.name: package.version for package in recipe.packages}
    record = {"ingredients": recipe.ingredients, "packages": versions}
    if find_record(last) != record:
        keep_record(last, record)


def _packages(before: Mapping[str, str], recipe: Recipe) -> str:
    after = {package.name: package.version for package in recipe.packages}
    texts = [
        f"{name} {version} added" if name not in before else f"{name} {before[name]} → {version}"
        for name, version in after.items()
        if before.get(name) != version
    ]
    texts += [f"{name} removed" for name in before if name not in after]
    more = len(texts) - _MOST
    shown = texts[:_MOST] + ([f"{more} more"] if more > 0 else [])
    return ", ".join(shown) or "other files of the same versions"
