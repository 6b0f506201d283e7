"""Set globals of a job's modules to their values at the call, unless the import gave them equal ones."""

from __future__ import annotations

import enum
import hashlib
import pickle
import sys
import threading
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from io import BytesIO
from pathlib import PurePath
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any, ClassVar, Final, NamedTuple

from kinetic_payload.calls.rebuild import lookup, project_paths, wraps
from kinetic_payload.calls.unpickle import load
from kinetic_payload.errors import PayloadError


class _Plain:
    pass


_DEEPEST: Final = 6
_LARGEST: Final = 10_000
"""The most members of a container that are compared one by one."""
_MISSING: Final = object()
_CONTAINERS: Final = (dict, list, set, bytearray, deque)
LOCKS: Final = (type(threading.Lock()), type(threading.RLock()))
"""Types whose objects are the job's own, made by its import."""
_NAMED: Final = (type, ModuleType, FunctionType, enum.Enum)
_REFILLED: Final = (list, set, dict, OrderedDict, defaultdict, Counter)
"""Containers that get the members of another one."""
_PLAIN: Final = (_Plain.__basicsize__, _Plain.__dictoffset__)
"""The layout of objects whose state is their `__dict__`."""
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
    """A global of an imported module whose value at the call matters in the job."""

    module: ModuleType
    name: str
    """For an attribute of a class, `Class.attribute`."""
    assigned: bool
    """Whether code by value assigns it."""
    read: bool = True
    """Whether code by value reads it. If not, the program set it, and code by reference may read it."""

    @property
    def key(self) -> tuple[str, str]:
        """The names of the module and of the global."""
        return self.module.__name__, self.name


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
    read: bool = True
    """See `UsedGlobal`."""
    rebound: bool = True
    """Whether the name may have another object than the import gave it; otherwise that object changed."""


class Restorer:
    """Sets globals of modules here to their values at the call, which a Python of the version *written_by* made."""

    def __init__(self, written_by: str) -> None:
        self.warnings: list[str] = []
        """One for each global that still differs."""
        self._written_by = written_by
        self._apart: dict[tuple[str, str], Any] = {}

    def restore(self, wanted: Iterable[Global]) -> None:
        """Set the globals *wanted*.

        One that the import made equal is not replaced: it stays the one object that all modules share.

        Raises:
            UntravelledGlobalError: A global has another value here, and its value at the call did not travel.
        """
        for saved in wanted:
            self.warnings += self._restore(saved)

    def find(self, reference: tuple[Any, ...]) -> Any:
        """Return the global that an object of the call is, by module and name, or a path of the project.

        The first reference to a global contains what must be set there. That to a path has the texts around the
        project's folder, and its type.
        """
        if len(reference) == 2:
            texts, kind = reference
            return kind(project_paths()[0].join(texts))
        module, name, saved = reference
        if (module, name) not in self._apart:
            self.restore(saved)
            try:
                return lookup(import_module(module), name)
            except (Exception, SystemExit):
                if not saved or saved[0].pickled is None:
                    raise
                # The module cannot be imported here: then it does not share the object.
                self._apart[module, name] = self._load(saved[0].pickled)
        return self._apart[module, name]

    def _load(self, pickled: bytes) -> Any:
        return load(BytesIO(pickled), self._written_by, self.find)

    def _restore(self, saved: Global) -> Iterator[str]:
        *path, name = saved.name.split(".")
        try:
            holder: Any = import_module(saved.module)
            for part in path:
                holder = getattr(holder, part)
        except (Exception, SystemExit):
            if saved.read:
                raise
            return  # What cannot be imported here, the job does not read.
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
                raise untravelled(
                    saved, "nothing of that name" if own is _MISSING else kind_of(own)
                )
            marks = dict(attributes_of(own))
            differing = [name for name, mark in saved.attributes if marks.get(name) != mark]
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
            value = self._load(saved.pickled)
        except Exception as error:
            if saved.read and (own is _MISSING or not saved.mark.startswith(_BY_NAME)):
                raise
            # For instance after `try: import x`, `except ImportError: x = None`.
            yield (
                f"{saved.module}.{saved.name} was {saved.kind} at the call, and is {kind_of(own)} here: {error}"
            )
            return
        if mark and mark == mark_of(value) and not mark.startswith(_TYPE):
            return  # Paths of the project are others here.
        if saved.rebound:
            if own is _MISSING or not same_literal(own, value):
                setattr(holder, name, value)
        elif not _take_state(own, value):
            setattr(holder, name, value)
            if type(own) is type(value) and has_state(type(own)):
                _replace(own, value)


def _take_state(own: Any, value: Any) -> bool:
    """Give *own* the contents of *value*, and return whether that is possible."""
    kind = type(own)
    if own is value:
        return True
    if kind is not type(value) or not takes_state(kind):
        return False
    if kind is list:
        own[:] = value
    elif issubclass(kind, dict | set):
        own.clear()
        own.update(value)
    if hasattr(own, "__dict__"):
        state = vars(value)
        vars(own).clear()
        vars(own).update(state)
    return True


def takes_state(kind: type) -> bool:
    """Tell whether an object of *kind* can get the state of another one."""
    is_plain = (kind.__basicsize__, kind.__dictoffset__) == _PLAIN
    return kind in _REFILLED or (is_plain and not hasattr(kind, "__setstate__"))


def _replace(own: Any, value: Any) -> None:
    """Replace *own* by *value* wherever a module of the project refers to it."""
    for module in sys.modules.copy().values():
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and file.startswith(project_paths()):
            for name in [name for name, found in vars(module).items() if found is own]:
                setattr(module, name, value)


def has_state(kind: type) -> bool:
    """Tell whether objects of *kind* may change, or cannot be copied, and do not travel by name."""
    if issubclass(kind, _NAMED):
        return False
    return issubclass(kind, _CONTAINERS) or kind in LOCKS or kind.__dictoffset__ != 0


def same_literal(initial: Any, value: Any) -> bool:
    """Tell whether *value* is what the literal *initial* gives."""
    try:
        same = type(initial) is type(value) and bool(initial == value)
    except Exception:  # noqa: BLE001 - arrays, for instance, are not simply equal
        return False
    return same and repr(initial) == repr(value)  # 1 and 1.0 are equal.


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
    module = name = None
    if not has_state(type(value)) or wraps(value):
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
        parts = None
        with suppress(RuntimeError):  # Another thread may change it.
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
