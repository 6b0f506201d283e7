"""Capture the environment variables that a job gets from its submitter."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from kinetic.errors import InvalidRequestError
from kinetic_payload.frozen import frozen

NEVER_BY_PATTERN = (
    "PATH",
    "HOME",
    "PYTHONPATH",
    "LD_*",
    "DYLD_*",
    "VIRTUAL_ENV",
    "CONDA_*",
    "SHELL",
    "TMPDIR",
    "TEMP",
    "TMP",
    "HOSTNAME",
    "USER",
    "LOGNAME",
    "SSH_AUTH_SOCK",
    "KUBERNETES_*",
    "KINETIC_*",
)
"""Variables that describe this machine or this client. An exact name captures them; a pattern does not."""


class SecretValues(Mapping[str, str]):
    """Environment variables whose values are secret: `repr` shows their names only."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = dict(values)

    def __getitem__(self, name: str) -> str:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._values))

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"SecretValues({', '.join(self)})"


@frozen()
class Captured:
    """The captured variables, and the names and patterns that matched none."""

    values: SecretValues
    missing: tuple[str, ...]
    """Exact names that are not set."""
    unmatched: tuple[str, ...] = ()
    """Patterns that match no variable."""

    def notes(self) -> list[str]:
        """Return warnings for the user; they contain names, never values."""
        notes = [f"{name} is in capture_env_vars, and is not set here." for name in self.missing]
        return notes + [f"No variable here matches {pattern}." for pattern in self.unmatched]


def check_patterns(patterns: Iterable[str] | None) -> tuple[str, ...]:
    """Return *patterns* if each is the name of a variable, or a prefix followed by `*`.

    Raises:
        InvalidRequestError: One is not.
    """
    if isinstance(patterns, str):
        raise InvalidRequestError(
            f"capture_env_vars is the text {patterns!r}, not a list.",
            hint=f"Write capture_env_vars=[{patterns!r}].",
        )
    if patterns is not None and not isinstance(patterns, Iterable):
        raise InvalidRequestError(
            f"capture_env_vars is {patterns!r}, not a list.",
            hint="Give names, or prefixes followed by '*'.",
        )
    checked = tuple(patterns or ())
    for pattern in checked:
        if not isinstance(pattern, str) or not pattern or "=" in pattern or "\0" in pattern:
            raise InvalidRequestError(
                f"capture_env_vars contains {pattern!r}, which is not the name of a variable.",
                hint="Give names, or prefixes followed by '*'; the values are taken from your environment.",
            )
        if "*" in pattern[:-1]:
            raise InvalidRequestError(
                f"capture_env_vars contains {pattern!r}; a '*' is allowed at the end only.",
                hint="Give names, or prefixes followed by '*'.",
            )
    return checked


def capture(patterns: Iterable[str], environ: Mapping[str, str]) -> Captured:
    """Return the variables of *environ* that match *patterns*, which `check_patterns` has accepted."""
    captured: dict[str, str] = {}
    missing, unmatched = [], []
    for pattern in dict.fromkeys(patterns):
        if pattern.endswith("*"):
            found = {
                name: value
                for name, value in environ.items()
                if name.startswith(pattern[:-1]) and not _describes_machine(name)
            }
            captured.update(found)
            if not found:
                unmatched.append(pattern)
        elif pattern in environ:
            captured[pattern] = environ[pattern]
        else:
            missing.append(pattern)
    return Captured(SecretValues(captured), tuple(missing), tuple(unmatched))


def _describes_machine(name: str) -> bool:
    return any(
        name.startswith(rule[:-1]) if rule.endswith("*") else name == rule
        for rule in NEVER_BY_PATTERN
    )
