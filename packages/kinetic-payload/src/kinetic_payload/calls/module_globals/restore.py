"""Set globals of a job's modules to their values at the call, unless the import gave them equal ones."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterator, Sequence
from importlib import import_module
from io import BytesIO
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any, ClassVar, Final, NamedTuple

from kinetic_payload.calls.unpickle import load
from kinetic_payload.errors import PayloadError

_DEEPEST: Final = 6
_LARGEST: Final = 10_000
"""Members of a container that are compared one by one."""
_MISSING: Final = object()
_SORTED: Final = 16 * 1024 * 1024
"""Bytes of a pickle whose sets are compared regardless of their order, which is slow."""
_TYPE: Final = "type "
_BY_NAME: Final = ("module ", "name ")
HINT: Final = (
    "Pass it as an argument, make it inside the function, or set it where the module is imported."
)


class UntravelledGlobalError(PayloadError):
    """A global of an imported module was set since the import, and cannot be pickled."""


class UsedGlobal(NamedTuple):
    """A global of an imported module that code by value reads."""

    module: ModuleType
    name: str
    """Of an attribute of a class, `Class.attribute`."""
    assigned: bool
    """Whether that code also assigns it."""


class Global(NamedTuple):
    """A global of an imported module at the call."""

    module: str
    name: str
    kind: str
    """What it is, in words."""
    mark: str
    """Of its value, by `mark_of`; empty if the job's value certainly differs."""
    pickled: bytes | None
    """None if it cannot be pickled."""
    why: str = ""
    """Why it cannot."""
    attributes: tuple[tuple[str, str], ...] = ()
    """Of an object that cannot be pickled: names and marks."""


def restore(wanted: Sequence[Global], written_by: str) -> list[str]:
    """Set globals of modules here to their values at the call; return a warning for each that still differs.

    A global that the import made equal is not touched: it stays the one object that all share.

    Raises:
        UntravelledGlobalError: One had been set since the import, and could not be pickled.
    """
    return [warning for one in wanted for warning in _restore(one, written_by)]


def _restore(one: Global, written_by: str) -> Iterator[str]:
    holder: Any = import_module(one.module)
    *path, name = one.name.split(".")
    for part in path:
        holder = getattr(holder, part)
    own = vars(holder).get(name, _MISSING)
    if own is _MISSING and one.pickled is None:
        own = getattr(holder, name, _MISSING)  # A module may make it on first access.
    mark = "" if own is _MISSING else mark_of(own)
    if one.pickled is None:
        if mark != one.mark:
            raise untravelled(one, "nothing of that name" if own is _MISSING else kind_of(own))
        differing = [name for name, mark in one.attributes if _mark_in(own, name) != mark]
        if differing:
            yield (
                f"{one.module}.{one.name}, {one.kind}, {one.why}: the job has the one that its own "
                f"import made, and these attributes differ from the call's: {', '.join(differing)}."
            )
        return
    if mark and mark == one.mark and not mark.startswith(_TYPE):
        return
    try:
        value = load(BytesIO(one.pickled), written_by)
    except Exception as error:
        if own is _MISSING or not one.mark.startswith(_BY_NAME):
            raise
        # For instance after `try: import x`, `except ImportError: x = None`.
        yield (
            f"{one.module}.{one.name} was {one.kind} at the call, and is {kind_of(own)} here: {error}"
        )
        return
    if own is _MISSING or not _equal(own, value):
        setattr(holder, name, value)


def untravelled(one: Global, own: str) -> UntravelledGlobalError:
    """Return the error for a global that cannot be pickled; *own* is the value that the import gives."""
    return UntravelledGlobalError(
        f"The function reads {one.name!r} of the module {one.module!r}, which was {one.kind} at the "
        f"call and {one.why}. The job's own import of the module has {own}.",
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


def _parts(value: Any) -> list[Any] | None:
    """Return the parts of a container, or of a function that was made by another one."""
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
        # A pickler for each member costs most of the time, and UTF-8 never begins as a pickle does.
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
