"""Ignore files of a folder, and of the repository above it, read into its scope."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kinetic_payload.digests import open_regular
from kinetic_payload.errors import PackagingError
from kinetic_payload.project.ignore import GIT_FILE, OWN_FILE, RuleSet, Scope

_REPOSITORY: Final = ".git"
_NO_FILE: Final = {None, errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO}
"""Errors of a file that does not exist or is not regular: git ignores it as well."""


def top_scope(root: Path, *, no_defaults: bool) -> Scope:
    """Return the rules for the top of *root*, with those of the repository it is a part of."""
    plain = Scope.top(no_defaults=no_defaults)
    # If the root is a link, its repository is that of the target.
    folder = root = Path(os.path.realpath(root))
    above: Sequence[str] = []
    while not (folder / _REPOSITORY).exists():
        if folder == folder.parent:
            return plain
        above = [folder.name, *above]
        folder = folder.parent
    scope = _scope_of_repository(str(folder))
    place = str(folder)
    for depth, name in enumerate(above):
        up = "../" * (len(above) - depth)
        scope = scope_in(scope, place, up, {_REPOSITORY, GIT_FILE, OWN_FILE})
        if scope.leaves_out(name, is_folder=True):
            # The repository ignores this folder, so its rules do not apply.
            return Scope(plain.defaults, ignore_case=scope.ignore_case)
        scope = scope.inner(name)
        place = f"{place}/{name}"
    return scope._replace(defaults=plain.defaults)


def scope_in(scope: Scope, folder: str, prefix: str, names: set[str]) -> Scope:
    """Return *scope* with the ignore files among the *names* of its folder.

    Args:
        prefix: The path of *folder* in the sources of rules: empty, or ending in `/`.

    Raises:
        PackagingError: An ignore file cannot be read: the files that it excludes would be shipped.
    """
    if _REPOSITORY in names:
        if not scope.in_repository:
            inner = _scope_of_repository(folder)
            scope = inner._replace(
                defaults=scope.defaults, own=scope.own, git=scope.git + inner.git
            )
        git = f"{folder}/{_REPOSITORY}"
        source = f"{prefix}{_REPOSITORY}/info/exclude"
        # In worktrees and submodules `.git` is a file with the path of the repository.
        if (place := _read_text(git)) is not None:
            git = os.path.join(folder, place.removeprefix("gitdir:").strip())  # noqa: PTH118
            git = os.path.join(git, (_read_text(f"{git}/commondir") or "").strip())  # noqa: PTH118
            source = os.path.normpath(f"{git}/info/exclude")
        excluded = _read_rules(f"{git}/info/exclude", source, ignore_case=scope.ignore_case)
        scope = scope.reading(git=excluded)
    rules = {
        name: _read_rules(
            f"{folder}/{name}", prefix + name, ignore_case=scope.ignore_case, required=True
        )
        for name in (GIT_FILE, OWN_FILE)
        if name in names
    }
    return scope.reading(own=rules.get(OWN_FILE), git=rules.get(GIT_FILE))


def _read_rules(
    file: str, source: str, *, ignore_case: bool, required: bool = False
) -> RuleSet | None:
    """Read an ignore file; return None if there is none, or if it cannot be read and is not *required*."""
    try:
        with os.fdopen(open_regular(file), "rb") as opened:
            return RuleSet.parse(opened.read(), source, ignore_case=ignore_case)
    except OSError as error:
        if not required or error.errno in _NO_FILE:
            return None
        raise PackagingError(
            f"{file} cannot be read ({error.strerror}), so the files that it excludes would be shipped.",
            hint="Make it readable, or remove it.",
        ) from error


def _read_text(file: str) -> str | None:
    try:
        with os.fdopen(open_regular(file), "rb") as opened:
            return os.fsdecode(opened.read())
    except OSError:
        return None


def _scope_of_repository(folder: str) -> Scope:
    """Return the scope that git's configuration gives the repository at *folder*."""
    command = ["git", f"--git-dir={folder}/{_REPOSITORY}", "config", "--null", "--type=path"]
    try:
        done = subprocess.run(
            [*command, "--get-regexp", r"^core\.(excludesfile|ignorecase)$"],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except OSError:
        return Scope((), in_repository=True)  # Without git there is no configuration.
    listed = os.fsdecode(done.stdout).split("\0")
    values = dict(item.split("\n", 1) for item in listed if "\n" in item)
    ignore_case = values.get("core.ignorecase", "").lower() in ("true", "yes", "on", "1")
    # This is git's default, and git reads the variable: it is not a setting of Kinetic.
    config = os.path.expandvars("$XDG_CONFIG_HOME")
    if not config.startswith("/"):
        config = os.path.expanduser("~/.config")  # noqa: PTH111
    file = values.get("core.excludesfile", f"{config}/git/ignore")
    file = os.path.join(folder, file)  # noqa: PTH118
    rules = _read_rules(file, file, ignore_case=ignore_case)
    return Scope((), ignore_case=ignore_case, in_repository=True).reading(git=rules)
