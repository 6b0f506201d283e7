"""Set globals of a job's modules to their values at the call, unless the import gave them equal ones."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterator, Sequence
from importlib import import_module
from io import BytesIO
from pathlib import PurePath
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any, ClassVar, Final, NamedTuple

from kinetic_payload.calls.rebuild import project_paths
from kinetic_payload.calls.unpickle import load
from kinetic_payload.errors import PayloadError

_DEEPEST: Final = 6
_LARGEST: Final = 10_000
"""The most members of a container that are compared one by one."""
_MISSING: Final = object()
_SORTED: Final = 16 * 1024 * 1024
"""The most bytes of a pickle whose sets are compared regardless of their order, which is slow."""
_TYPE: Final = "type "
_BY_NAME: Final = ("module ", "name ")
OF_MACHINE: Final = "computed from the machine"
"""Why such a value does not travel."""
HINT: Final = (
    "Pass it as an argument, create it inside the function, or set it where the module is imported."
)


class UntravelledGlobalError(PayloadError):
    """A global of an imported module was set since the import, and cannot be pickled."""


class UsedGlobal(NamedTuple):
    """A global of an imported module that code by value reads."""

    module: ModuleType
    name: str
    """For an attribute of a class, `Class.attribute`."""
    assigned: bool
    """Whether that code also assigns it."""


class Global(NamedTuple):
    """A global of an imported module at the call."""

    module: str
    name: str
    kind: str
    """Its value, described by `kind_of`."""
    mark: str
    """The mark of its value, by `mark_of`; empty if the job's value certainly differs."""
    pickled: bytes | None
    """None if the value does not travel: it cannot be pickled, or is large."""
    why: str = ""
    """Why the value does not travel."""
    attributes: tuple[tuple[str, str], ...] = ()
    """Names and marks of the attributes of an object that cannot be pickled."""


def restore(wanted: Sequence[Global], written_by: str) -> list[str]:
    """Set globals of modules here to their values at the call; return a warning for each that still differs.

    A global that the import made equal is not replaced: it stays the one object that all modules share.

    Raises:
        UntravelledGlobalError: A global has another value here, and its value at the call did not travel.
    """
    return [warning for saved in wanted for warning in _restore(saved, written_by)]


def _restore(saved: Global, written_by: str) -> Iterator[str]:
    holder: Any = import_module(saved.module)
    *path, name = saved.name.split(".")
    for part in path:
        holder = getattr(holder, part)
    own = vars(holder).get(name, _MISSING)
    if own is _MISSING and saved.pickled is None:
        own = getattr(holder, name, _MISSING)  # A module may make it on first access.
    mark = "" if own is _MISSING else mark_of(own)
    if saved.pickled is None:
        if saved.why == OF_MACHINE:
            if (path_mark(own, project_paths()) or mark) != saved.mark:
                yield (
                    f"{saved.module}.{saved.name} is {OF_MACHINE} where the module is imported: the job has its "
                    "own value, which differs from that at the call."
                )
        elif mark != saved.mark:
            raise untravelled(saved, "nothing of that name" if own is _MISSING else kind_of(own))
        differing = [name for name, mark in saved.attributes if _mark_in(own, name) != mark]
        if differing:
            yield (
                f"{saved.module}.{saved.name} was {saved.kind} at the call and {saved.why}. The job has the "
                "object that its own import made; attributes that differ from the call's: "
                f"{', '.join(differing)}."
            )
        return
    if mark and mark == saved.mark and not mark.startswith(_TYPE):
        return
    try:
        value = load(BytesIO(saved.pickled), written_by)
    except Exception as error:
        if own is _MISSING or not saved.mark.startswith(_BY_NAME):
            raise
        # For instance after `try: import x`, `except ImportError: x = None`.
        yield (
            f"{saved.module}.{saved.name} was {saved.kind} at the call, and is {kind_of(own)} here: {error}"
        )
        return
    if own is _MISSING or not _equal(own, value):
        setattr(holder, name, value)


def untravelled(saved: Global, own: str) -> UntravelledGlobalError:
    """Return the error for a global that cannot be pickled; *own* is the value that the import gives."""
    return UntravelledGlobalError(
        f"The function reads {saved.name!r} of the module {saved.module!r}, which was {saved.kind} at the "
        f"call and {saved.why}. The job's own import of the module has {own}.",
        hint=HINT,
    )


def kind_of(value: object) -> str:
    """Describe *value* in words."""
    if value is None or isinstance(value, bool | int | float):
        return repr(value)
    if isinstance(value, ModuleType):
        return f"the module {value.__name__}"
    name = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    size = f" of {len(value)}" if isinstance(value, dict | list | set | tuple | str | bytes) else ""
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}{size}"


def mark_of(value: Any, depth: int = 0) -> str:
    """Return a text that is the same in two processes if *value* is equal in both.

    For a value that cannot be pickled, it is only the type, and begins with `type`.
    """
    if isinstance(value, ModuleType):
        return f"module {value.__name__}"
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    named = isinstance(module, str) and isinstance(name, str) and "<" not in name
    if named and not isinstance(value, MethodType):
        return f"name {module}.{name}"
    digest = _Digest()
    try:
        pickle.Pickler(digest, 5).dump(value)
        if digest.may_have_sets and digest.size <= _SORTED:
            return f"pickle {hashlib.sha256(_in_order(value)).hexdigest()}"
    except Exception:  # noqa: BLE001 - user code may raise anything
        parts = None if depth > _DEEPEST else _parts(value)
        if parts is None:
            return f"{_TYPE}{type(value).__module__}.{type(value).__qualname__}"
        for part in parts:
            digest.write(f"{mark_of(part, depth + 1)}\n".encode())
        return f"parts {type(value).__qualname__} {digest.text}"
    return f"pickle {digest.text}"


def path_mark(value: object, project: Sequence[str]) -> str | None:
    """Return a mark of *value* if it is a path in the *project*, which has another place in a job."""
    if isinstance(value, str | PurePath):
        for root in project:
            if PurePath(value).is_relative_to(root):
                return f"project {PurePath(value).relative_to(root)}"
    return None


def _parts(value: Any) -> list[Any] | None:
    """Return the parts of a container or of a nested function."""
    if type(value) is dict and len(value) <= _LARGEST:
        return [part for item in value.items() for part in item]
    if type(value) in (list, tuple) and len(value) <= _LARGEST:
        return list(value)
    if isinstance(value, FunctionType):
        code = value.__code__
        cells = [cell.cell_contents for cell in value.__closure__ or () if cell != CellType()]
        name = f"{value.__module__}.{value.__qualname__}"
        made = [name, code.co_firstlineno, code.co_code, value.__defaults__, value.__kwdefaults__]
        return [*made, *cells]
    return None


def attributes_of(value: Any) -> tuple[tuple[str, str], ...]:
    """Return the names and marks of the object's own attributes."""
    found = getattr(value, "__dict__", None)
    if not isinstance(found, dict):
        return ()
    return tuple((str(name), mark_of(part)) for name, part in list(found.items()))


def _mark_in(value: Any, name: str) -> str:
    found = getattr(value, "__dict__", {})
    return mark_of(found[name]) if name in found else ""


def _equal(own: Any, value: Any) -> bool:
    if type(own) is not type(value):
        return False
    try:
        return (own == value) is True
    except Exception:  # noqa: BLE001 - user code may raise anything
        return False


def _in_order(value: Any) -> bytes:
    stream = BytesIO()
    _InOrder(stream, 5).dump(value)
    return stream.getvalue()


class _InOrder(pickle._Pickler):
    """Pickle sets in the same order in all processes, only to compare them."""

    def _save_set(self, value: Any) -> None:
        # Most of the time would go into a pickler for each member. So strings are encoded directly: UTF-8
        # never begins as a pickle does.
        members = sorted(
            member.encode(errors="surrogatepass") if type(member) is str else _in_order(member)
            for member in value
        )
        self.save((type(value).__name__, members))  # type: ignore[attr-defined]  # It has no types.

    dispatch: ClassVar[dict[type, Any]] = {
        **pickle._Pickler.dispatch,
        set: _save_set,
        frozenset: _save_set,
    }


class _Digest:
    """A stream that keeps only a digest and the number of bytes."""

    def __init__(self) -> None:
        self._sha256 = hashlib.sha256()
        self.size = 0
        self.may_have_sets = False

    def write(self, data: Any) -> int:
        """Add *data*."""
        self._sha256.update(data)
        size = memoryview(data).nbytes
        if size <= _SORTED and not self.may_have_sets:
            seen = bytes(data)
            self.may_have_sets = pickle.EMPTY_SET in seen or pickle.FROZENSET in seen
        self.size += size
        return size

    @property
    def text(self) -> str:
        """The digest of all that was written."""
        return self._sha256.hexdigest()
