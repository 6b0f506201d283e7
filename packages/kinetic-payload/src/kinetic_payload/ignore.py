"""What a snapshot leaves out: ignore files with git's meaning, and defaults.

Three layers decide about a path, the first that has an opinion wins: the lines of `.kineticignore`
files (deepest file first, last line first), the defaults, the lines of `.gitignore` files. So a
`!name` in `.kineticignore` brings back anything, and a `.gitignore` written as a list of exceptions
(`*`, `!*/`, `!*.py`) does not bring back keys and `.git` by accident. As with git, nothing below a
folder that is left out can be brought back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

GIT_FILE: Final = ".gitignore"
OWN_FILE: Final = ".kineticignore"

DEFAULTS: Final = (
    # Version control
    *(".git", ".hg", ".svn", ".bzr", ".jj", ".sl", "CVS", "_darcs"),
    # Caches: made again by whoever needs them
    *("__pycache__/", "*.pyc", "*.pyo", ".cache/", ".mypy_cache/", ".ruff_cache/"),
    *(".pytest_cache/", ".hypothesis/", ".pytype/", ".pyre/", ".tox/", ".nox/", ".eggs/"),
    *(".ipynb_checkpoints/", ".coverage", ".coverage.*", ".DS_Store", "node_modules"),
    # Virtual environments; those of other names are told by what lies in them
    *(".venv", "__pypackages__/"),
    # Secrets: environment files, keys, certificates, credentials
    *(".env*", "*.pem", "*.key", "*.p8", "*.p12", "*.pfx", "*.crt", "*.cer", "*.der", "*.csr"),
    *("*.jks", "*.keystore", "*.kdbx", "*.ppk", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519"),
    *(".netrc", ".pgpass", ".pypirc", ".git-credentials", ".ssh/", ".gnupg/", ".aws/"),
    "application_default_credentials.json",
)
"""In the syntax of ignore files."""

ENVIRONMENT_MARKERS: Final = frozenset(("pyvenv.cfg", "conda-meta"))
"""A folder that holds one of these is an environment of this machine, useless on any other."""

_SPECIAL: Final = re.compile(r"[*?\[\]\\]")

_Part = str | re.Pattern[str] | None
"""A name, a pattern for one, or None: any number of folders."""
_NOTHING: Final = ""
"""Fits no name."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of an ignore file, or one default."""

    source: str
    """`src/.gitignore:3`, or `default`."""
    pattern: str
    excludes: bool
    folders_only: bool = False

    def __str__(self) -> str:
        return f"{self.source}: {self.pattern}"


@dataclass(slots=True)
class RuleSet:
    """The lines of one ignore file, sorted by how they can be looked up.

    Most lines are a name, a path, `*suffix` or `prefix*`: those are found without trying each.
    For wildcards proper pathspec is asked, part by part: over whole paths it answers whether a
    file is left out in the end, and what is needed here is whether a line means this very entry.
    """

    rules: list[Rule] = field(default_factory=list)
    _names: dict[str, list[int]] = field(default_factory=dict)
    _paths: dict[str, list[int]] = field(default_factory=dict)
    _suffixes: dict[str, list[int]] = field(default_factory=dict)
    _prefixes: dict[str, list[int]] = field(default_factory=dict)
    _globs: list[tuple[int, tuple[_Part, ...]]] = field(default_factory=list)
    _any_suffix: tuple[str, ...] = ()
    _any_prefix: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str, source: str) -> RuleSet:
        """Read the ignore file *source*; lines that git would not understand mean nothing."""
        lines = text.removeprefix("\ufeff").split("\n")
        return cls._of(
            (f"{source}:{number}", line.removesuffix("\r"))
            for number, line in enumerate(lines, start=1)
        )

    @classmethod
    def defaults(cls) -> RuleSet:
        """Return the defaults."""
        return cls._of(("default", line) for line in DEFAULTS)

    @classmethod
    def _of(cls, lines: Iterable[tuple[str, str]]) -> RuleSet:
        rules = cls()
        for source, line in lines:
            if line.strip() and not line.startswith("#"):
                rules._add(source, line)
        rules._any_suffix = tuple(rules._suffixes)
        rules._any_prefix = tuple(rules._prefixes)
        return rules

    def _add(self, source: str, line: str) -> None:
        body = _trimmed(line.removeprefix("!"))
        name = body.removesuffix("/")
        if not name or name.endswith("/") or "//" in name:
            return
        index = len(self.rules)
        if not _SPECIAL.search(name):
            table = self._paths if "/" in name else self._names
            table.setdefault(name.removeprefix("/"), []).append(index)
        elif "/" not in name and name[0] == "*" and not _SPECIAL.search(name[1:]):
            self._suffixes.setdefault(name[1:], []).append(index)
        elif "/" not in name and name[-1] == "*" and not _SPECIAL.search(name[:-1]):
            self._prefixes.setdefault(name[:-1], []).append(index)
        else:
            # A line without a slash means a name at any depth.
            texts = name.removeprefix("/").split("/") if "/" in name else ["**", name]
            parts = [_part(text) for text in texts]
            if _NOTHING in parts:
                return
            self._globs.append((index, tuple(parts)))
        self.rules.append(Rule(source, line, not line.startswith("!"), body.endswith("/")))

    def verdict(self, folder: str, name: str, *, is_folder: bool) -> Rule | None:
        """Return the last rule about *name* in *folder* (relative to the ignore file, ends in `/`)."""
        found = list(self._names.get(name, ()))
        if self._paths:
            found += self._paths.get(folder + name, ())
        if self._suffixes and name.endswith(self._any_suffix):
            found += _matching(self._suffixes, name.endswith)
        if self._prefixes and name.startswith(self._any_prefix):
            found += _matching(self._prefixes, name.startswith)
        if not is_folder and found:
            found = [index for index in found if not self.rules[index].folders_only]
        best = max(found, default=-1)
        path = [*folder.split("/")[:-1], name] if self._globs else []
        for index, parts in reversed(self._globs):
            if index < best:
                break
            if (is_folder or not self.rules[index].folders_only) and _fits(path, parts):
                best = index
                break
        return self.rules[best] if best >= 0 else None


def _matching(table: dict[str, list[int]], fits: Callable[[str], bool]) -> list[int]:
    return [index for key, indexes in table.items() if fits(key) for index in indexes]


def _trimmed(line: str) -> str:
    """Return *line* without the spaces at its end, but for one after a backslash."""
    bare = line.rstrip(" ")
    backslashes = len(bare) - len(bare.rstrip("\\"))
    return bare + " " if backslashes % 2 and bare != line else bare


def _part(text: str) -> _Part:
    """Return what the part *text* between two slashes fits: a name, a pattern, or any folders."""
    if text == "**":
        return None
    if not _SPECIAL.search(text):
        return text
    from pathspec import GitIgnoreSpec

    try:
        (pattern,) = GitIgnoreSpec.from_lines([f"/{text}"]).patterns
    except (ValueError, re.error):
        return _NOTHING
    return pattern.regex if isinstance(pattern.regex, re.Pattern) else _NOTHING


def _fits(path: list[str], parts: tuple[_Part, ...]) -> bool:
    """Tell whether *parts* mean the very entry at *path*, rather than something above it."""
    if not parts:
        return not path
    first, rest = parts[0], parts[1:]
    if first is None:
        if not rest:
            return bool(path)
        if len(rest) == 1 and rest[0] is not None:
            return _fits(path[-1:], rest)
        return any(_fits(path[start:], rest) for start in range(len(path)))
    if not path:
        return False
    if isinstance(first, str):
        here = first == path[0]
    else:
        match = first.match(path[0])
        here = match is not None and match.end() == len(path[0])
    return here and _fits(path[1:], rest)


@dataclass(frozen=True, slots=True)
class Scope:
    """What decides inside one folder of a tree: every ignore file from the top down to it."""

    defaults: RuleSet | None
    own: tuple[tuple[RuleSet, str], ...] = ()
    """Rule sets, and the folder seen from each file's place: empty, or ending in `/`."""
    git: tuple[tuple[RuleSet, str], ...] = ()

    @classmethod
    def top(cls, *, no_defaults: bool = False) -> Scope:
        """Return the scope of a tree's root before any ignore file is read."""
        return cls(None if no_defaults else RuleSet.defaults())

    def inner(self, name: str) -> Scope:
        """Return the scope of the folder *name* in this one."""
        if not self.own and not self.git:
            return self
        return Scope(
            self.defaults,
            tuple((rules, f"{folder}{name}/") for rules, folder in self.own),
            tuple((rules, f"{folder}{name}/") for rules, folder in self.git),
        )

    def reading(self, *, own: RuleSet | None = None, git: RuleSet | None = None) -> Scope:
        """Return this scope with the ignore files that lie in its folder."""
        if own is None and git is None:
            return self
        return Scope(
            self.defaults,
            (*self.own, (own, "")) if own else self.own,
            (*self.git, (git, "")) if git else self.git,
        )

    def leaves_out(self, name: str, *, is_folder: bool) -> Rule | None:
        """Return the rule that leaves *name* of this folder out, or None."""
        for rules, folder in reversed(self.own):
            if rule := rules.verdict(folder, name, is_folder=is_folder):
                return rule if rule.excludes else None
        if self.defaults and (rule := self.defaults.verdict("", name, is_folder=is_folder)):
            return rule
        for rules, folder in reversed(self.git):
            if rule := rules.verdict(folder, name, is_folder=is_folder):
                return rule if rule.excludes else None
        return None


def ignore_line(path: str, *, is_folder: bool) -> str:
    """Return the line of an ignore file at the root that leaves out exactly *path*."""
    escaped = re.sub(r"([*?\[\\])", r"\\\1", path)
    # What cannot be written in a line of text stands for any character.
    escaped = re.sub("[\n\r\ud800-\udfff]", "?", escaped)
    if escaped.endswith(" "):
        escaped = escaped[:-1] + "\\ "
    return f"/{escaped}/" if is_folder else f"/{escaped}"
