"""Read the ignore files of a folder, and those of the repository above it, into its scope."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from kinetic_payload.digests import open_regular
from kinetic_payload.ignore import GIT_FILE, OWN_FILE, RuleSet, Scope


def top_scope(root: Path, *, no_defaults: bool) -> Scope:
    """Return the rules for the top of *root*, with those of the repository it is a part of."""
    plain = Scope.top(no_defaults=no_defaults)
    above: Sequence[Path] = []
    for folder in (root, *root.parents):
        if (folder / ".git").exists():
            break
        above = [folder, *above]
    else:
        return plain
    if folder == root:
        return plain
    names = [place.name for place in above]
    scope = Scope(None)
    place = folder
    for depth, name in enumerate(names):
        up = "../" * (len(names) - depth)
        scope = scope.reading(
            own=read_rules(str(place / OWN_FILE), up + OWN_FILE),
            git=read_rules(str(place / GIT_FILE), up + GIT_FILE),
        )
        if scope.leaves_out(name, is_folder=True):
            # The repository does not want to know about this folder: its rules are not about it.
            return plain
        scope = scope.inner(name)
        place /= name
    return Scope(plain.defaults, scope.own, scope.git)


def scope_in(scope: Scope, folder: str, prefix: str, names: set[str]) -> Scope:
    """Return *scope* with the ignore files among the *names* of its folder."""
    rules = {
        name: read_rules(f"{folder}/{name}", prefix + name)
        for name in (GIT_FILE, OWN_FILE)
        if name in names
    }
    return scope.reading(own=rules.get(OWN_FILE), git=rules.get(GIT_FILE))


def read_rules(file: str, source: str) -> RuleSet | None:
    """Read an ignore file, or return None where none can be read."""
    try:
        with os.fdopen(open_regular(file), encoding="utf-8", errors="surrogateescape") as opened:
            return RuleSet.parse(opened.read(), source)
    except OSError:
        return None  # Of a file that may not be read the walk will say so itself.
