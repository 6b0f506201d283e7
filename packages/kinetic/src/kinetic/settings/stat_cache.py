"""The stat cache of a tree, in `KINETIC_HOME`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from kinetic_payload.project.stat_cache import StatCache


def stat_cache(home: Path, tree: Path) -> StatCache:
    """Return the cache of the digests of *tree*'s files, kept in *home* (`KINETIC_HOME`)."""
    from kinetic_payload.project.stat_cache import StatCache

    return StatCache.of(tree, home / "cache" / "trees")
