"""Unpickle what any Python wrote: plain values always, functions by value only of this minor version."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from typing import Any, Final, NoReturn, Protocol

from kinetic_payload.errors import PayloadError

_MAKES_CODE: Final = frozenset(
    {
        ("builtins", "code"),
        ("types", "CodeType"),
        ("kinetic_payload.calls.rebuild", "code_in_project"),
        ("kinetic_payload.calls.rebuild", "code_with_lines"),
    }
)
_QUALNAME: Final = 12
"""Where `co_qualname` stands among the arguments of `CodeType`, from Python 3.11 on."""


class Readable(Protocol):
    """What `pickle` reads from."""

    def read(self, size: int, /) -> bytes:
        """Return up to *size* bytes."""
        ...

    def readline(self) -> bytes:
        """Return the bytes up to the next line's end."""
        ...


def load(stream: Readable, written_by: str) -> Any:
    """Unpickle from *stream* what a Python of the version *written_by* wrote; `""` is this version.

    Byte code means something else in each minor version, and running it can crash the process.

    Raises:
        PayloadError: It contains a function by value, and another minor version wrote it.
    """
    if difference(written_by) is None:
        return pickle.load(stream)
    return _Unpickler(stream, written_by).load()


def difference(written_by: str) -> str | None:
    """Return the versions in words if *written_by* is another minor version than this one."""
    here = minor(python_version())
    if not written_by or minor(written_by) == here:
        return None
    return f"written by Python {minor(written_by)} and read by Python {here}"


def python_version() -> str:
    """Return this Python's version, `3.11.7`."""
    return ".".join(map(str, sys.version_info[:3]))


def minor(version: str) -> str:
    """Return the minor version, `3.11`, of a full *version*."""
    return ".".join(version.split(".")[:2])


class _Unpickler(pickle.Unpickler):
    """Refuses code before it is made."""

    def __init__(self, stream: Readable, written_by: str) -> None:
        super().__init__(stream)
        self._written_by = written_by

    def find_class(self, module: str, name: str, /) -> Any:
        if (module, name) in _MAKES_CODE:
            return self._refuse
        found = super().find_class(module, name)
        if (module, name) == ("cloudpickle.cloudpickle", "_builtin_type"):
            return self._instead_of(found)
        return found

    def _instead_of(self, builtin_type: Callable[[str], Any]) -> Callable[[str], Any]:
        return lambda name: self._refuse if name == "CodeType" else builtin_type(name)

    def _refuse(self, *arguments: Any) -> NoReturn:
        parts = arguments[1] if len(arguments) == 2 else arguments
        name = parts[_QUALNAME] if len(parts) > _QUALNAME else "?"
        raise PayloadError(
            f"The function {name} travels by value, as byte code of Python "
            f"{minor(self._written_by)}, which Python {minor(python_version())} cannot run."
        )
