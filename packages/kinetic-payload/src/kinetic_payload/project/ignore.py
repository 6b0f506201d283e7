"""Rules for paths that a snapshot leaves out: ignore files with git's meaning, and defaults.

Three layers decide about a path, and the first one with a matching rule counts: the lines of
`.kineticignore` files (deepest file first, last line first), the defaults, the lines of `.gitignore`
files. So a `!name` in `.kineticignore` brings back anything, and a `.gitignore` written as a list of exceptions
(`*`, `!*/`, `!*.py`) does not bring back keys and `.git` by accident. As with git, nothing below a
folder that is left out can be brought back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kinetic_payload.project.wildmatch import SPECIAL, name_matcher, path_matcher

GIT_FILE: Final = ".gitignore"
OWN_FILE: Final = ".kineticignore"

DEFAULTS: Final = (
    # Version control
    *(".git", ".hg", ".svn", ".bzr", ".jj", ".sl", "CVS", "_darcs"),
    # Caches: created again when they are needed
    *("__pycache__/", "*.pyc", "*.pyo", ".cache/", ".mypy_cache/", ".ruff_cache/"),
    *(".pytest_cache/", ".hypothesis/", ".pytype/", ".pyre/", ".tox/", ".nox/", ".eggs/"),
    *(".ipynb_checkpoints/", ".coverage", ".coverage.*", ".DS_Store", "._*", "node_modules"),
    # Virtual environments; those with other names are detected by `ENVIRONMENT_MARKERS`
    *(".venv", "__pypackages__/"),
)
"""In the syntax of ignore files."""

SECRETS: Final = (
    # Environment files, keys, certificates, credentials
    *(".env*", "*.pem", "*.key", "*.p8", "*.p12", "*.pfx", "*.crt", "*.cer", "*.der", "*.csr"),
    *("*.jks", "*.keystore", "*.kdbx", "*.ppk", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519"),
    *("id_ecdsa_sk", "id_ed25519_sk", ".netrc", ".pgpass", ".pypirc", ".git-credentials", ".boto"),
    *(".ssh/", ".gnupg/", ".aws/", ".kube/"),
    *("application_default_credentials.json", "kaggle.json"),
)
"""Also left out by default, regardless of case: `SERVER.PEM` is a key on any file system."""

ENVIRONMENT_MARKERS: Final = frozenset(("pyvenv.cfg", "conda-meta"))
"""A folder that contains one of these is an environment of this machine, useless on any other."""

_UNDECODED: Final = re.compile("[\udc80-\udcff]")
_BOM: Final = b"\xef\xbb\xbf"


class Rule(NamedTuple):
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
    """The lines of one ignore file, indexed for fast lookup.

    Most lines are a name, a path, `*suffix` or `prefix*`: they are found without trying each line.
    """

    ignore_case: bool = False
    """Whether case is ignored, as in repositories on file systems that ignore it."""
    rules: list[Rule] = field(default_factory=list)
    _names: dict[str, list[int]] = field(default_factory=dict)
    _paths: dict[str, list[int]] = field(default_factory=dict)
    _suffixes: dict[str, list[int]] = field(default_factory=dict)
    _prefixes: dict[str, list[int]] = field(default_factory=dict)
    _globs: list[tuple[int, bool, re.Pattern[bytes]]] = field(default_factory=list)
    """Number of the line, whether it applies to whole paths, and its expression."""
    _any_suffix: tuple[str, ...] = ()
    _any_prefix: tuple[str, ...] = ()

    @classmethod
    def parse(cls, content: bytes, source: str, *, ignore_case: bool = False) -> RuleSet:
        """Read the ignore file *source*; lines that git does not understand are ignored."""
        lines = content.removeprefix(_BOM).split(b"\n")
        # Git ends a line at a NUL.
        cleaned = (line.removesuffix(b"\r").partition(b"\0")[0] for line in lines)
        return cls._of(
            ((f"{source}:{number}", line) for number, line in enumerate(cleaned, start=1)),
            ignore_case,
        )

    @classmethod
    def defaults(cls) -> tuple[RuleSet, RuleSet]:
        """Return the rule sets of `DEFAULTS` and of `SECRETS`."""
        return (
            cls._of((("default", line.encode()) for line in DEFAULTS), ignore_case=False),
            cls._of((("default", line.encode()) for line in SECRETS), ignore_case=True),
        )

    @classmethod
    def _of(cls, lines: Iterable[tuple[str, bytes]], ignore_case: bool) -> RuleSet:
        rules = cls(ignore_case)
        for source, line in lines:
            if not line.startswith(b"#"):
                rules._add(source, _trimmed(line))
        rules._any_suffix = tuple(rules._suffixes)
        rules._any_prefix = tuple(rules._prefixes)
        return rules

    def _add(self, source: str, line: bytes) -> None:
        body = line.removeprefix(b"!")
        pattern = body.removesuffix(b"/")
        if not pattern:
            return
        whole_path = b"/" in pattern
        pattern = pattern.removeprefix(b"/")
        text = self._folded(_decoded(pattern))
        # Undecodable bytes may be part of a character in a name, so `endswith` on text would not match.
        by_ends = not whole_path and not _UNDECODED.search(text)
        index = len(self.rules)
        if not SPECIAL.search(pattern):
            table = self._paths if whole_path else self._names
            table.setdefault(text, []).append(index)
        elif by_ends and text[0] == "*" and not SPECIAL.search(pattern[1:]):
            self._suffixes.setdefault(text[1:], []).append(index)
        elif by_ends and text[-1] == "*" and not SPECIAL.search(pattern[:-1]):
            self._prefixes.setdefault(text[:-1], []).append(index)
        else:
            matcher = path_matcher if whole_path else name_matcher
            compiled = matcher(pattern, ignore_case=self.ignore_case)
            if compiled is None:
                return
            self._globs.append((index, whole_path, compiled))
        self.rules.append(
            Rule(source, _decoded(line), not line.startswith(b"!"), body.endswith(b"/"))
        )

    def _folded(self, text: str) -> str:
        if not self.ignore_case:
            return text
        # ASCII only, as in git.
        return text.lower() if text.isascii() else _decoded(_encoded(text).lower())

    def verdict(self, folder: str, name: str, *, is_folder: bool) -> Rule | None:
        """Return the last rule that matches *name* in *folder* (relative to the ignore file, ends in `/`)."""
        if self.ignore_case:
            folder, name = self._folded(folder), self._folded(name)
        # Called several times for every file of every submit, nearly always without a match.
        if not (
            name in self._names
            or name.endswith(self._any_suffix)
            or name.startswith(self._any_prefix)
            or self._paths
            or self._globs
        ):
            return None
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
        if self._globs:
            bare, path = _encoded(name), _encoded(folder + name)
            for index, whole_path, matcher in reversed(self._globs):
                if index < best:
                    break
                if (is_folder or not self.rules[index].folders_only) and matcher.fullmatch(
                    path if whole_path else bare
                ):
                    best = index
                    break
        return self.rules[best] if best >= 0 else None


def _encoded(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")


def _decoded(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def _matching(table: dict[str, list[int]], fits: Callable[[str], bool]) -> list[int]:
    return [index for key, indexes in table.items() if fits(key) for index in indexes]


def _trimmed(line: bytes) -> bytes:
    """Return *line* without trailing spaces, except one after a backslash."""
    bare = line.rstrip(b" ")
    backslashes = len(bare) - len(bare.rstrip(b"\\"))
    return bare + b" " if backslashes % 2 and bare != line else bare


class Scope(NamedTuple):
    """The rules of one folder of a tree: all ignore files from the top down to it."""

    defaults: tuple[RuleSet, ...]
    own: tuple[tuple[RuleSet, str], ...] = ()
    """Rule sets, each with the folder relative to its file: empty, or ending in `/`."""
    git: tuple[tuple[RuleSet, str], ...] = ()
    ignore_case: bool = False
    """Whether the repository ignores case."""
    in_repository: bool = False
    """Whether the rules include the user's configuration of git."""

    @classmethod
    def top(cls, *, no_defaults: bool = False) -> Scope:
        """Return the scope of a tree's root before any ignore file is read."""
        return cls(() if no_defaults else RuleSet.defaults())

    def inner(self, name: str) -> Scope:
        """Return the scope of the folder *name* in this one."""
        if not self.own and not self.git:
            return self
        return self._replace(
            own=tuple((rules, f"{folder}{name}/") for rules, folder in self.own),
            git=tuple((rules, f"{folder}{name}/") for rules, folder in self.git),
        )

    def reading(self, *, own: RuleSet | None = None, git: RuleSet | None = None) -> Scope:
        """Return this scope with the ignore files of its folder."""
        return self._replace(
            own=(*self.own, (own, "")) if own else self.own,
            git=(*self.git, (git, "")) if git else self.git,
        )

    def leaves_out(self, name: str, *, is_folder: bool) -> Rule | None:
        """Return the rule that leaves *name* of this folder out, or None."""
        for rules, folder in reversed(self.own):
            if rule := rules.verdict(folder, name, is_folder=is_folder):
                return rule if rule.excludes else None
        for defaults in self.defaults:
            if rule := defaults.verdict("", name, is_folder=is_folder):
                return rule
        for rules, folder in reversed(self.git):
            if rule := rules.verdict(folder, name, is_folder=is_folder):
                return rule if rule.excludes else None
        return None

    def leaves_out_goal(self, name: str, goal: str, *, is_folder: bool) -> Rule | None:
        """Return the default that leaves out the link *name* because it leads to a secret, or None.

        Args:
            goal: The real path that the link leads to, outside of the tree. Its target would be shipped
                in place of the link.
        """
        if any(rules.verdict(folder, name, is_folder=is_folder) for rules, folder in self.own):
            return None  # A rule includes it again; a rule that excludes it was applied before.
        *above, last = goal.split("/")
        for secrets in self.defaults[1:]:
            if rule := secrets.verdict("", last, is_folder=is_folder):
                return rule
            for part in above:
                rule = secrets.verdict("", part, is_folder=True)
                if rule and rule.folders_only:
                    return rule
        return None


def ignore_line(path: str, *, is_folder: bool) -> str:
    """Return the line of an ignore file at the root that leaves out exactly *path*."""
    escaped = re.sub(r"([*?\[\\])", r"\\\1", path)
    # Characters that a line cannot contain are replaced by `?`, which matches any.
    escaped = re.sub("[\n\r\ud800-\udfff]", "?", escaped)
    if escaped.endswith(" "):
        escaped = escaped[:-1] + "\\ "
    return f"/{escaped}/" if is_folder else f"/{escaped}"
