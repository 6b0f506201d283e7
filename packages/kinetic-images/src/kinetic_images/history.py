"""The ingredients of a project's last image, to name what changed when the next one must be built."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kinetic_images.kept_records import find_record, keep_record
from kinetic_images.recipe import Recipe

_MOST: Final = 5
"""How many packages a message names."""


def changed_ingredients(home: Path, project: str, recipe: Recipe) -> str:
    """Return a sentence on what differs between *recipe* and the last image of *project*."""
    last = _read(home, project)
    if last is None:
        return "The registry has no image for these dependencies yet."
    before, after = last["ingredients"], recipe.ingredients
    changed = [name for name in after if before.get(name) != after[name]]
    changed += [name for name in before if name not in after]
    if not changed:
        return "The registry no longer has the image for these dependencies."
    texts = [
        f"packages ({_packages(last['packages'], _versions(recipe))})"
        if name == "packages"
        else name
        for name in changed
    ]
    return f"A new image is needed. Changed since the last one: {', '.join(texts)}."


def remember(home: Path, project: str, recipe: Recipe) -> None:
    """Keep the ingredients of *recipe* as those of the last image of *project*."""
    record = {"ingredients": recipe.ingredients, "packages": _versions(recipe)}
    if _read(home, project) != record:
        keep_record(_path(home, project), record)


def _versions(recipe: Recipe) -> dict[str, str]:
    return {package.name: package.version for package in recipe.packages}


def _packages(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    texts = [
        f"{name} {version} added" if name not in before else f"{name} {before[name]} → {version}"
        for name, version in after.items()
        if before.get(name) != version
    ]
    texts += [f"{name} removed" for name in before if name not in after]
    more = len(texts) - _MOST
    shown = texts[:_MOST] + ([f"{more} more"] if more > 0 else [])
    return ", ".join(shown) or "other files of the same versions"


def _read(home: Path, project: str) -> dict[str, Any] | None:
    record = find_record(_path(home, project)) or {}
    parts = (record.get("ingredients"), record.get("packages"))
    return record if all(isinstance(part, dict) for part in parts) else None


def _path(home: Path, project: str) -> Path:
    return home / "cache" / "images" / "last" / f"{project}.json"
