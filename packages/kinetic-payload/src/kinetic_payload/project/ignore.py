"""Rules for paths that a snapshot leaves out: ignore files with git's meaning, and defaults.

Three layers decide about a path, and the first one with a matching rule counts: the lines of
`.kineticignore` files (deepest file first, last line first), the defaults, the lines of `.gitignore`
files. So a `!name` in `.kineticignore` brings back anything, and a `.gitignore` written as a list of exceptions
(`*`, `!*/`, `!*.py`) does not bring back keys and `.git` by accident. As with git, nothing below a
folder that is left out can be brought back.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from kinetic_payload.project.wildmatch import name_expression, path_expression

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


class RuleSet:
    """The lines of one ignore file.

    Nearly every name matches none of them, which two expressions of all lines together tell.
    """

    def __init__(self, lines: Iterable[tuple[str, bytes]], *, ignore_case: bool) -> None:
        self._rules: list[tuple[Rule, bool, bytes]] = []
        """Each rule with whether it applies to whole paths, and its expression."""
        self._flags = re.DOTALL | (re.IGNORECASE if ignore_case else 0)
        for source, written in lines:
            # Spaces at the end do not count, except one after a backslash.
            line = written.rstrip(b" ")
            if line != written and (len(line) - len(line.rstrip(b"\\"))) % 2:
                line += b" "
            body = line.removeprefix(b"!")
            pattern = body.removesuffix(b"/")
            if line.startswith(b"#") or not pattern:
                continue
            whole_path = b"/" in pattern
            of_pattern = path_expression if whole_path else name_expression
            expression = of_pattern(pattern.removeprefix(b"/"), ignore_case=ignore_case)
            if expression is not None:
                text = line.decode("utf-8", "surrogateescape")
                rule = Rule(source, text, not line.startswith(b"!"), body.endswith(b"/"))
                self._rules.append((rule, whole_path, expression))
        self._names, self._paths = self._any(whole_path=False), self._any(whole_path=True)

    def _any(self, *, whole_path: bool) -> re.Pattern[bytes] | None:
        """Return the expression for what matches at least one line; None if there are no such lines."""
        found = [
            b"(?:%s)" % expression for _, whole, expression in self._rules if whole == whole_path
        ]
        return re.compile(b"|".join(found), self._flags) if found else None

    @classmethod
    def parse(cls, content: bytes, source: str, *, ignore_case: bool = False) -> RuleSet:
        """Read the ignore file *source*; lines that git does not understand are ignored."""
        lines = content.removeprefix(_BOM).split(b"\n")
        # Git ends a line at a NUL.
        cleaned = (line.removesuffix(b"\r").partition(b"\0")[0] for line in lines)
        numbered = ((f"{source}:{number}", line) for number, line in enumerate(cleaned, start=1))
        return cls(numbered, ignore_case=ignore_case)

    @classmethod
    @functools.cache
    def defaults(cls) -> tuple[RuleSet, RuleSet]:
        """Return the rule sets of `DEFAULTS` and of `SECRETS`."""
        return (
            cls((("default", line.encode()) for line in DEFAULTS), ignore_case=False),
            cls((("default", line.encode()) for line in SECRETS), ignore_case=True),
        )

    def verdict(self, folder: str, name: str, *, is_folder: bool) -> Rule | None:
        """Return the last rule that matches *name* in *folder* (relative to the ignore file, ends in `/`)."""
        # Called several times for every file of every submit.
        bare = name.encode("utf-8", "surrogateescape")
        path = (folder + name).encode("utf-8", "surrogateescape") if self._paths else b""
        if not (
            (self._names and self._names.fullmatch(bare))
            or (self._paths and self._paths.fullmatch(path))
        ):
            return None
        for rule, whole_path, expression in reversed(self._rules):
            if (is_folder or not rule.folders_only) and re.compile(
                expression, self._flags
            ).fullmatch(path if whole_path else bare):
                return rule
        return None


class Scope(NamedTuple):
    """The rules of one folder of a tree: all ignore files from the top down to it."""

    defaults: tuple[tuple[RuleSet, str], ...]
    """Rule sets, each with the folder relative to its file: empty, or ending in `/`."""
    own: tuple[tuple[RuleSet, str], ...] = ()
    git: tuple[tuple[RuleSet, str], ...] = ()
    ignore_case: bool = False
    """Whether the repository ignores case."""
    in_repository: bool = False
    """Whether the rules include the user's configuration of git."""

    @classmethod
    def top(cls, *, no_defaults: bool = False) -> Scope:
        """Return the scope of a tree's root before any ignore file is read."""
        return cls(() if no_defaults else tuple((rules, "") for rules in RuleSet.defaults()))

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
        for rules, folder in (*self.own[::-1], *self.defaults, *self.git[::-1]):
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
        for secrets, _ in self.defaults[1:]:
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
