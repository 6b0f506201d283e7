"""Which environment variables travel: exact names, and patterns that end in `*`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from kinetic.errors import InvalidRequestError

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PATTERN: Final = re.compile(r"[A-Za-z0-9_]*\*")

_OF_THE_MACHINE: Final = frozenset(
    {
        "HOME",
        "HOSTNAME",
        "LOGNAME",
        "PATH",
        "PYTHONPATH",
        "SHELL",
        "SSH_AUTH_SOCK",
        "TEMP",
        "TMP",
        "TMPDIR",
        "USER",
        "VIRTUAL_ENV",
    }
)
# Kinetic's own settings describe the client, and the runner sets those that a job needs.
_PREFIXES_OF_THE_MACHINE: Final = ("LD_", "DYLD_", "CONDA_", "KUBERNETES_", "KINETIC_")


class SecretValues(Mapping[str, str]):
    """Variables whose names may be shown and whose values may not."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = dict(values)

    def __getitem__(self, name: str) -> str:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"SecretValues({', '.join(f'{name}=…' for name in self._values)})"

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError("Captured values are not pickled: they would end up in a payload.")


@dataclass(frozen=True)
class Captured:
    """What was captured, and what was asked for and is not there."""

    values: SecretValues
    missing: tuple[str, ...] = ()
    """Exact names that are not set."""
    unmatched: tuple[str, ...] = ()
    """Patterns that took nothing."""

    def notes(self) -> list[str]:
        """Return what the user should read, without any value."""
        notes = [
            f"capture_env_vars names {name}, which is not set here, so the job will not see it."
            for name in self.missing
        ]
        notes += [
            f"No environment variable matches {pattern!r} of capture_env_vars."
            for pattern in self.unmatched
        ]
        return notes


def check_patterns(wanted: object) -> tuple[str, ...]:
    """Return the names and patterns of `capture_env_vars`.

    Raises:
        InvalidRequestError: It is not a list of names and of patterns that end in `*`.
    """
    if wanted is None:
        return ()
    if isinstance(wanted, str) or not isinstance(wanted, Iterable):
        raise InvalidRequestError(
            f"capture_env_vars must be a list of names, not {wanted!r}.",
            hint=f"Write capture_env_vars=[{wanted!r}]."
            if isinstance(wanted, str)
            else "Write capture_env_vars=['NAME', 'PREFIX_*'].",
        )
    found = tuple(wanted)
    for text in found:
        if isinstance(text, str) and (_NAME.fullmatch(text) or _PATTERN.fullmatch(text)):
            continue
        raise InvalidRequestError(
            f"capture_env_vars holds {text!r}, which is neither a variable's name nor a pattern.",
            hint="Name a variable (HF_TOKEN), or end a prefix with '*' (HF_*).",
        )
    return found


def capture(wanted: Iterable[str], environ: Mapping[str, str]) -> Captured:
    """Take the variables that *wanted* names from *environ*.

    A pattern never takes what describes this machine (`PATH`, `HOME`, `LD_*`, …) or Kinetic itself;
    an exact name does. Of exact names only those that are set at all are taken, empty ones included.
    """
    values: dict[str, str] = {}
    missing, unmatched = [], []
    for text in dict.fromkeys(wanted):
        if not text.endswith("*"):
            if text in environ:
                values[text] = environ[text]
            else:
                missing.append(text)
            continue
        prefix = text[:-1]
        taken = {
            name: value
            for name, value in environ.items()
            if name.startswith(prefix) and not _describes_the_machine(name)
        }
        if not taken:
            unmatched.append(text)
        values.update(taken)
    in_order = SecretValues({name: values[name] for name in sorted(values)})
    return Captured(in_order, tuple(missing), tuple(unmatched))


def _describes_the_machine(name: str) -> bool:
    return name in _OF_THE_MACHINE or name.startswith(_PREFIXES_OF_THE_MACHINE)
