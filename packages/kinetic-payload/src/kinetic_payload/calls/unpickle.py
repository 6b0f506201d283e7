"""Unpickle what another Python, or an earlier version of Kinetic, wrote.

Plain values are read from any Python, functions by value only from the same minor version.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from typing import IO, Any, Final, NoReturn

from kinetic_payload.errors import PayloadError

_MOVED: Final = {
    "kinetic.callables": "kinetic.submit.functions",
    "kinetic.outcomes": "kinetic.jobs.outcome",
    "kinetic_payload.annotations": "kinetic_payload.calls.annotations",
    "kinetic_payload.assertions": "kinetic_payload.calls.assertions",
    "kinetic_payload.concurrently": "kinetic_payload.threads",
    "kinetic_payload.class_parts": "kinetic_payload.calls.classes.introspection",
    "kinetic_payload.class_rebuilding": "kinetic_payload.calls.classes.rebuild",
    "kinetic_payload.loading": "kinetic_payload.calls.unpickle",
    "kinetic_payload.module_globals": "kinetic_payload.calls.module_globals.restore",
    "kinetic_payload.pytrees": "kinetic_payload.calls.classes.pytrees",
    "kinetic_payload.rebuilding": "kinetic_payload.calls.rebuild",
    "kinetic_payload.references": "kinetic_payload.data.references",
    "kinetic_payload.reports": "kinetic_payload.records.host_outcome",
    "kinetic_payload.stores.gcs.downloads": "kinetic_payload.stores.gcs.download",
    "kinetic_payload.stores.gcs.fetching": "kinetic_payload.stores.gcs.resumable_download",
    "kinetic_payload.stores.gcs.origin": "kinetic_payload.stores.gcs.errors",
    "kinetic_payload.stores.gcs.patience": "kinetic_payload.stores.gcs.errors",
    "kinetic_runner.call": "kinetic_runner.child.call",
    "kinetic_runner.debugger": "kinetic_runner.child.debugger",
    "kinetic_runner.distributed": "kinetic_runner.child.distributed",
    "kinetic_runner.report": "kinetic_runner.child.result",
}
"""Former names of modules → their current names.

Values and exceptions in a store may contain former names: a job that runs during an upgrade writes such values.
If you move one of these modules, or another one that pickles refer to, add its former name here. Do not rename
the functions and classes that pickles refer to.
"""
_CLASSES: Final = "kinetic_payload.calls.classes.introspection"
_HTTP: Final = "kinetic_payload.http.session"
_GCS_ERRORS: Final = "kinetic_payload.stores.gcs.errors"
_RENAMED: Final = {
    ("kinetic_payload.records", "JobRecord"): ("kinetic_payload.records.job", "JobRecord"),
    ("kinetic_payload.records", "Keeper"): ("kinetic_payload.records.job", "Keeper"),
    ("kinetic_payload.records", "Outcome"): ("kinetic_payload.records.outcome", "Outcome"),
    (_CLASSES, "RecursiveAliasError"): (_CLASSES, "UnrestorableClassError"),
    (_GCS_ERRORS, "BrokenAnswerError"): (_HTTP, "NoResponseError"),
    (_GCS_ERRORS, "InvalidResponseError"): (_HTTP, "NoResponseError"),
    (_GCS_ERRORS, "UnreachableError"): (_HTTP, "NoResponseError"),
    (_GCS_ERRORS, "ForeignAnswerError"): (_HTTP, "NoResponseError"),
    (_GCS_ERRORS, "InterceptedResponseError"): (_HTTP, "NoResponseError"),
    (_GCS_ERRORS, "PatienceError"): (_GCS_ERRORS, "RetryError"),
}
"""Module, by its current name, and former name of a class → its current module and name.

Stored values, and the causes of stored exceptions, may contain these classes.
"""
_MAKES_CODE: Final = frozenset(
    {
        ("builtins", "code"),
        ("types", "CodeType"),
        ("kinetic_payload.calls.rebuild", "code_in_project"),
        ("kinetic_payload.calls.rebuild", "code_with_lines"),
    }
)
_QUALNAME: Final = 12
"""The index of `co_qualname` in the arguments of `CodeType`, from Python 3.11 on."""


def _find_nothing(pid: Any) -> NoReturn:
    raise pickle.UnpicklingError(f"nothing is known of the object {pid!r}")


def load(stream: IO[bytes], written_by: str, find: Callable[[Any], Any] = _find_nothing) -> Any:
    """Unpickle *stream*, which a Python of the version *written_by* wrote; `""` is this version.

    Byte code differs between minor versions, and running byte code of another one can crash the process.
    *find* returns the objects that the stream refers to by a persistent id.

    Raises:
        PayloadError: It contains a function by value, from another minor version.
    """
    return _Unpickler(stream, written_by, find).load()


def difference(written_by: str) -> str | None:
    """Return both versions in words if *written_by* is another minor version, else None."""
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
    """Resolve former names of modules, and refuse byte code of another minor version before it is loaded."""

    def __init__(self, stream: IO[bytes], written_by: str, find: Callable[[Any], Any]) -> None:
        super().__init__(stream)
        self._written_by = written_by
        self._find = find
        self._refuses_code = difference(written_by) is not None

    def find_class(self, module: str, name: str, /) -> Any:
        module = _MOVED.get(module, module)
        module, name = _RENAMED.get((module, name), (module, name))
        if self._refuses_code and (module, name) in _MAKES_CODE:
            return self._refuse
        found = super().find_class(module, name)
        if (module, name) == ("cloudpickle.cloudpickle", "subimport"):
            return lambda module: found(_MOVED.get(module, module))
        if self._refuses_code and (module, name) == ("cloudpickle.cloudpickle", "_builtin_type"):
            return lambda name: self._refuse if name == "CodeType" else found(name)
        return found

    def persistent_load(self, pid: Any, /) -> Any:
        return self._find(pid)

    def _refuse(self, *arguments: Any) -> NoReturn:
        parts = arguments[1] if len(arguments) == 2 else arguments
        name = parts[_QUALNAME] if len(parts) > _QUALNAME else "?"
        raise PayloadError(
            f"The function {name} travels by value, as byte code of Python "
            f"{minor(self._written_by)}, which Python {minor(python_version())} cannot run."
        )
