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
    pathspec, which knows the rest of git's syntax, is asked about the others only.
    """

    rules: list[Rule] = field(default_factory=list)
    _names: dict[str, list[int]] = field(default_factory=dict)
    _paths: dict[str, list[int]] = field(default_factory=dict)
    _suffixes: dict[str, list[int]] = field(default_factory=dict)
    _prefixes: dict[str, list[int]] = field(default_factory=dict)
    _others: list[tuple[int, re.Pattern[str]]] = field(default_factory=list)
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
        body = line.removeprefix("!")
        if "\\" not in body:
            body = body.rstrip(" ")
        name = body.removesuffix("/")
        index = len(self.rules)
        rule = Rule(source, line, not line.startswith("!"), body.endswith("/"))
        if not name or name.endswith("/") or "//" in name:
            return
        if not _SPECIAL.search(name):
            table = self._paths if "/" in name else self._names
            key = name.removeprefix("/")
        elif "/" not in name and name[0] == "*" and not _SPECIAL.search(name[1:]):
            table, key = self._suffixes, name[1:]
        elif "/" not in name and name[-1] == "*" and not _SPECIAL.search(name[:-1]):
            table, key = self._prefixes, name[:-1]
        else:
            if (regex := _compiled(line)) is not None:
                self._others.append((index, regex))
                self.rules.append(rule)
            return
        table.setdefault(key, []).append(index)
        self.rules.append(rule)

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
        if self._others:
            path = f"{folder}{name}/" if is_folder else folder + name
            for index, regex in reversed(self._others):
                if index < best:
                    break
                if _matches(regex, path):
                    best = index
                    break
        return self.rules[best] if best >= 0 else None


def _matching(table: dict[str, list[int]], fits: Callable[[str], bool]) -> list[int]:
    return [index for key, indexes in table.items() if fits(key) for index in indexes]


def _compiled(line: str) -> re.Pattern[str] | None:
    from pathspec import GitIgnoreSpec

    try:
        patterns = list(GitIgnoreSpec.from_lines([line]).patterns)
    except (ValueError, re.error):
        return None
    regex = patterns[0].regex if patterns else None
    return regex if isinstance(regex, re.Pattern) else None


def _matches(regex: re.Pattern[str], path: str) -> bool:
    """Tell whether pathspec's *regex* means this very path, not a folder that it lies in.

    The walk asks about every folder on the way, so what a rule does to the things below is decided
    there, exactly as git does it.
    """
    match = regex.match(path)
    if match is None:
        return False
    if "ps_d" in regex.groupindex:  # pathspec's mark for "and everything below"
        end = match.end() if match["ps_d"] is None else match.end("ps_d")
        return end == len(path)
    return True


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
