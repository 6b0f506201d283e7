"""The pickler of calls: decides what travels by reference or by value, and collects `Data`."""

from __future__ import annotations

import enum
import io
import pickle
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path, PurePosixPath, PureWindowsPath
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, BinaryIO, Final

from cloudpickle import cloudpickle as internals

from kinetic_payload.calls import rebuild
from kinetic_payload.calls.annotations import annotations_of, own_annotations
from kinetic_payload.calls.by_reference import is_main
from kinetic_payload.calls.classes.introspection import subclasses_of
from kinetic_payload.calls.classes.reduce import ByteCounter, ClassPickler, Handler
from kinetic_payload.calls.code import (
    assigned_globals_in,
    attributes_in,
    code_within,
    lines_of,
    mentions_in,
    names_in,
    names_of_classes_in,
)
from kinetic_payload.calls.function_state import function_state
from kinetic_payload.calls.module_globals.changes import Changes
from kinetic_payload.calls.module_globals.dump import dump_global
from kinetic_payload.calls.module_globals.restore import (
    LOCKS,
    Global,
    UntravelledGlobalError,
    UsedGlobal,
    has_state,
    takes_state,
)
from kinetic_payload.data.references import collecting, data_path

_PATHS: Final = frozenset({str, type(Path()), PurePosixPath, PureWindowsPath})
_FILENAME: Final = 10
"""The index of `co_filename` in the arguments of `CodeType`, from Python 3.11 on."""
_SET_BY_IMPORT: Final = frozenset(
    {
        "__annotations__",
        "__builtins__",
        "__cached__",
        "__file__",
        "__loader__",
        "__name__",
        "__package__",
        "__spec__",
    }
)
"""Globals that every module gets when it is imported; the client's values would be wrong on the worker."""


class CallPickler(ClassPickler):
    """Pickle a call so that a worker with the project's snapshot can load it.

    *collect* takes a `Data` and returns its key. *names* are the names to ship from modules that travel by value;
    after `dump`, `wanted` holds those that the code uses.
    *root* is the value of a global that is dumped by itself. Without *sent*, the pickle is only measured.
    """

    def __init__(
        self,
        stream: BinaryIO,
        *,
        changes: Changes,
        collect: Callable[[object], str],
        names: frozenset[str] = frozenset(),
        root: object = None,
        sent: set[tuple[str, str]] | None = None,
    ) -> None:
        super().__init__(stream)
        self.changes = changes
        self.sent = set[tuple[str, str]]() if sent is None else sent
        """The globals, by module and name, whose values travel where an object first refers to them."""
        self._measures = sent is None
        self._root = root
        self._of_module = root is not None
        self._unshared: set[int] = set()
        """By identity: objects that travel by value, although they are globals of modules."""
        self._where = changes.where
        self._main = changes.main
        self._collect = collect
        self._names = names
        self._parts: list[ModuleType] = []
        self._mentioned: set[str] = set()
        self._inner_code: set[CodeType] = set()
        self._by_value: dict[type, bool] = {}
        self._shipped: set[str] = set()
        self._hinted: set[str] = set()
        self._classes: list[type] = []
        self._asks_for_subclasses = False
        self.used_globals: dict[UsedGlobal, None] = {}
        """In the order in which they were found."""
        self.collected = 0
        """How many times a `Data` was found."""
        self.warnings: list[str] = []
        """About values that do not travel."""

    def handler_of(self, kind: type) -> Handler | None:
        """Return the function that reduces objects of *kind*; None if pickle does it."""
        if issubclass(kind, self.changes.data_type):
            return self._reduce_data
        if issubclass(kind, ModuleType):
            return self._reduce_module
        if kind is MethodType:
            return self._reduce_method
        if kind is CodeType:
            return self._reduce_code
        if kind is io.TextIOWrapper:
            return _reduce_text_file
        return super().handler_of(kind)

    def _reduce_data(self, data: Any) -> Any:
        self.collected += 1
        return data_path, (self._collect(data),)

    def importable(self, module: object) -> bool:
        """Tell whether the job can import the module of this name."""
        return isinstance(module, str) and self._where.importable(module)

    def reference(self, obj: Any) -> tuple[str, str, int] | None:
        """Return where the worker finds *obj*: module, name, and how many other objects it wraps."""
        if has_state(type(obj)) and not rebuild.wraps(obj):
            return None  # It may have a `__getattr__`.
        module = getattr(obj, "__module__", None)
        name = getattr(obj, "__qualname__", None)
        if not isinstance(module, str) or not isinstance(name, str):
            return None
        if not self._where.importable(module) or not rebuild.leads_to(obj, module, name):
            return None
        return module, name, rebuild.depth_of(obj)

    def reduce_class(self, cls: type) -> Any:
        """Return how the job finds or rebuilds *cls*."""
        if self.goes_by_value(cls):
            self._classes.append(cls)
            if is_main(cls.__module__):
                self._hinted.update(names_in(own_annotations(cls)))
            main_name = self._name_in_main(cls)
            if main_name is not None:
                self._shipped.add(main_name)
            elif is_main(cls.__module__):
                first, *rest = cls.__qualname__.split(".")
                found: Any = self._main.get(first)
                for part in rest:
                    found = getattr(found, part, None)
                if found is cls:  # Other processes import it from `__main__`.
                    self._hinted.add(first)
            return self.reduce_class_by_value(cls, main_name=main_name)
        # No module contains some of the builtin types.
        if cls in internals._BUILTIN_TYPE_NAMES or internals._should_pickle_by_reference(cls):
            return internals._class_reduce(cls)
        return rebuild.resolve, self.reference(cls)

    def goes_by_value(self, obj: Any) -> bool:
        """Tell whether *obj*, a class or function, is rebuilt on the worker rather than imported."""
        if not isinstance(obj, type):
            return self.reference(obj) is None
        known = self._by_value.get(obj)
        if known is None:
            known = self._by_value[obj] = obj not in internals._BUILTIN_TYPE_NAMES and (
                not self.importable(obj.__module__)
                or not (internals._should_pickle_by_reference(obj) or self.reference(obj))
            )
        return known

    def reduce_bare(self, function: FunctionType) -> tuple[Any, ...]:
        """Return how to rebuild *function* without the objects that it refers to."""
        home = self._home_of(function)
        if home is None:
            return super().reduce_bare(function)
        name, closure = self._name_in_main(function), self.closure_of(function)
        return rebuild.function_in, (home, function.__code__, closure, name)

    def reduce_function(self, function: FunctionType) -> Any:
        """Return how the job finds or rebuilds *function*."""
        reference = self.reference(function)
        if reference is not None:
            module, name, _ = reference
            if rebuild.leads_plainly_to(function, module, name):
                return NotImplemented
            return rebuild.resolve, reference
        home = self._home_of(function)
        if home is None:  # its globals belong to no module
            return self.bared(function, self._dynamic_function_reduce(function))
        code = function.__code__
        state, slots = function_state(function)
        slots["__globals__"] = self._globals_to_ship(function, home, slots["__globals__"])
        if self._where.importable(home.__name__):
            slots["_cloudpickle_submodules"] = []  # the module imports them itself
        cells = map(internals._get_cell_contents, slots["__closure__"] or ())
        if any(  # It reaches a module that travels by value.
            isinstance(value, ModuleType)
            and not is_main(value.__name__)
            and not self._where.importable(value.__name__)
            for value in (*slots["__globals__"].values(), *cells)
        ):
            self._mentioned.update(mentions_in(code))
        if function.__globals__ is self._main:
            self._shipped.update(slots["__globals__"])
            self._hinted.update(names_in(annotations_of(function)), names_of_classes_in(code))
        state_and_setter = ((state, slots), None, None, internals._function_setstate)
        return self.bared(function, (*self.reduce_bare(function), *state_and_setter))

    def travelling_globals(self, function: FunctionType) -> dict[str, Any]:
        """Return the globals that must travel with a *function* whose code travels by value."""
        used = function_state(function)[1]["__globals__"]
        return self._globals_to_ship(function, self._home_of(function), used)

    def _globals_to_ship(
        self, function: FunctionType, home: ModuleType | None, used: dict[str, Any]
    ) -> dict[str, Any]:
        """Return those of the *used* globals that must travel; note those of imported modules."""
        self._note_attributes(function, used)
        if home is not None and self._where.importable(home.__name__):
            # In the job the globals of an imported module may have other values.
            assigned = assigned_globals_in(function.__code__)
            of_project = self.is_of_project(home.__name__)
            for name in used:
                # An import hook that rewrites code, such as pytest's, sets names like `@…`.
                if (of_project and name not in _SET_BY_IMPORT) or name.startswith("@"):
                    self.used_globals[UsedGlobal(home, name, name in assigned)] = None
            return {}
        return {name: value for name, value in used.items() if name not in _SET_BY_IMPORT}

    def _note_attributes(self, function: FunctionType, used: dict[str, Any]) -> None:
        """Note the attributes of modules, and of their classes, that *function* reads."""
        code = function.__code__
        cells = zip(
            code.co_freevars,
            map(internals._get_cell_contents, function.__closure__ or ()),
            strict=True,
        )
        holders = {
            name: value for name, value in (*used.items(), *cells) if self._holds_globals(value)
        }
        for (first, *between, name), assigned in attributes_in(code).items() if holders else ():
            holder: Any = holders.get(first)
            for part in between:
                holder = vars(holder).get(part) if self._holds_globals(holder) else None
            owners = holder.__mro__ if isinstance(holder, type) else (holder,)
            owner = next(
                (candidate for candidate in owners if name in getattr(candidate, "__dict__", ())),
                None,
            )
            if name.startswith("__") or not self._holds_globals(owner):
                continue
            module: Any = owner
            if isinstance(owner, type):
                if hasattr(type(vars(owner)[name]), "__get__"):
                    continue  # A method, a property or a slot
                name, module = f"{owner.__qualname__}.{name}", sys.modules[owner.__module__]
            self.used_globals[UsedGlobal(module, name, assigned)] = None

    def _holds_globals(self, holder: Any) -> bool:
        """Tell whether *holder* is a module or class of the project, which the job imports itself."""
        if isinstance(holder, type):
            if isinstance(holder, enum.EnumMeta) or self.goes_by_value(holder):
                return False
            return self.is_of_project(holder.__module__)
        if not isinstance(holder, ModuleType) or sys.modules.get(holder.__name__) is not holder:
            return False
        return self.is_of_project(holder.__name__) and self._where.importable(holder.__name__)

    def is_of_project(self, name: str) -> bool:
        """Tell whether the file of the imported module *name* is in the snapshot."""
        file = getattr(sys.modules.get(name), "__file__", None)
        return isinstance(file, str) and self._where.source(file) is not None

    def _home_of(self, function: FunctionType) -> ModuleType | None:
        """Return the module whose globals *function* uses, or None if no module has them."""
        if function.__globals__ is self._main:
            return sys.modules["__main__"]
        name = function.__globals__.get("__name__")
        module = sys.modules.get(name) if isinstance(name, str) else None
        return module if module and vars(module) is function.__globals__ else None

    def _name_in_main(self, obj: Any) -> str | None:
        name: str = obj.__qualname__
        if not is_main(str(obj.__module__)) or not name.isidentifier():
            return None
        found = rebuild.wrappings(self._main.get(name))
        return name if any(layer is obj for layer in found) else None

    def _reduce_method(self, method: MethodType) -> Any:
        cls, name = method.__self__, getattr(method, "__name__", None)
        if (
            isinstance(cls, type)
            and isinstance(name, str)
            and getattr(cls, name, None) == method
            and self.importable(cls.__module__)
        ):
            return getattr, (cls, name)
        return NotImplemented

    def _reduce_code(self, code: CodeType) -> Any:
        make, arguments = internals._code_reduce(code)
        self._asks_for_subclasses |= "__subclasses__" in code.co_names
        source = self._where.source(code.co_filename)
        if source is None:
            # Inner code is pickled after the outer code, whose lines include its own.
            text = "" if code in self._inner_code else lines_of(code)
            self._inner_code.update(code_within(code))
            return (rebuild.code_with_lines, (text, arguments)) if text else (make, arguments)
        arguments = (*arguments[:_FILENAME], source, *arguments[_FILENAME + 1 :])
        return rebuild.code_in_project, (source, arguments)

    def _reduce_module(self, module: ModuleType) -> Any:
        name = module.__name__
        if name == "_pytest.assertion.rewrite":
            return rebuild.imported, ("kinetic_payload.calls.assertions",)
        if module is sys.modules.get("__main__") or is_main(name):
            return rebuild.imported, ("__main__",)
        if self._where.importable(name):
            return rebuild.imported, (name,)
        self._parts.append(module)
        own = {key: vars(module)[key] for key in ("__doc__", "__package__") if key in vars(module)}
        contents = {}
        for key in [key for key in vars(module) if key in self._names]:
            # The names are a guess: the code may use them as attributes of other objects. So leave out a value
            # that cannot be pickled; `ModulePart` reports its name if the job uses it after all.
            with suppress(Exception):  # user code may raise anything
                self.measure(vars(module)[key])
                contents[key] = vars(module)[key]
        return rebuild.module_part, (name, own), contents, None, None, rebuild.fill_module

    def prober(self) -> CallPickler:
        """Return a pickler like this one that only counts bytes."""
        return self._another(ByteCounter())

    def measure(self, value: Any) -> int:
        """Return how many bytes *value* pickles to by itself; keep and collect nothing.

        Raises:
            Exception: Whatever pickling it raises.
        """
        sink = ByteCounter()
        self._another(sink, root=value).dump_uncollected(value)
        return sink.size

    def is_small(self, value: Any, most: int) -> bool:
        """Tell whether *value* can be pickled to *most* bytes, without any `Data`."""
        part = self._another(ByteCounter(most), root=value)
        with suppress(Exception):  # user code may raise anything
            part.dump_uncollected(value)
            return not part.collected
        return False

    def dump_apart(self, value: Any, stream: BinaryIO, used: UsedGlobal) -> None:
        """Pickle *value*, that of the global *used*, into *stream*, and note the names and globals that it uses."""
        sent = {*self.sent, used.key}
        part = self._another(
            stream, collect=self._collect, names=self._names, root=value, sent=sent
        )
        part._unshared |= self._unshared
        _, home = self.changes.objects.get(id(value), (None, None))
        if home is not None and home.key != used.key:
            part._root = None  # It is another global, too: only that one has its state.
        elif not takes_state(type(value)) or self.changes.rebinds(used):
            part._unshared.add(id(value))  # Until it is loaded, the global is another object.
        part.dump(value)
        self.sent |= sent
        self.warnings += part.warnings
        self._parts += part._parts
        self._mentioned |= part._mentioned
        self._hinted |= part._hinted
        self.used_globals.update(part.used_globals)
        self.collected += part.collected

    def _another(self, stream: Any, **options: Any) -> CallPickler:
        shares = self.changes.objects or "root" in options
        kind = SharingPickler if shares else CallPickler
        return kind(stream, changes=self.changes, **{"collect": _ignore_data, **options})

    def dump_uncollected(self, value: Any) -> None:
        """Pickle *value* without collecting its `Data`."""
        token = collecting.set(_ignore_data)
        try:
            self.dump(value)
        finally:
            collecting.reset(token)

    @property
    def hinted(self) -> frozenset[str]:
        """Globals of the entry script that only annotations and `__subclasses__` refer to."""
        names = self._hinted & self._main.keys()
        if self._asks_for_subclasses:
            below = map(self._name_in_main, subclasses_of(self._classes))
            names |= {name for name in below if name is not None}
        return frozenset(names) - self._shipped - _SET_BY_IMPORT

    def hints(self) -> dict[str, bytes]:
        """Pickle each of `hinted` separately, after `dump`; leave out those that cannot be pickled."""
        hints: dict[str, bytes] = {}
        waiting = set(self.hinted)
        seen = {*waiting, *self._shipped}
        while waiting:
            # In the order of their definition.
            name = next(key for key in self._main if key in waiting)
            waiting.remove(name)
            stream = io.BytesIO()
            pickler = self._another(stream)
            with suppress(Exception):  # user code may raise anything
                pickler.dump_uncollected(self._main[name])
                hints[name] = stream.getvalue()
                waiting |= pickler.hinted - seen
                seen |= waiting
        return hints

    @property
    def wanted(self) -> frozenset[str]:
        """The names that the dumped code uses from modules that travel by value."""
        return frozenset(
            name for module in self._parts for name in vars(module) if name in self._mentioned
        )


class SharingPickler(CallPickler):
    """Pickle objects that are globals of the project's modules as references to these."""

    def persistent_id(self, obj: Any, /) -> Any:
        """Return where the job finds *obj*, with what must be set there; None for other objects.

        In the state of a module, the project's folder is that of the job.
        """
        kind = type(obj)
        if kind in _PATHS and self._of_module and self.changes.folder is not None:
            texts = self.changes.folder.split(str(obj))
            return (texts, kind) if len(texts) > 1 else None
        found = self.changes.objects.get(id(obj))
        if found is None or id(obj) in self._unshared or self.reference(obj):
            return None
        used = found[1]
        key = used.key
        if obj is self._root:
            self._root = None  # Where it refers to itself, it is the global.
            return None
        saved: list[Global] = []
        if not self._measures and key not in self.sent:
            try:
                dumped = dump_global(used, self, shared=True)
            except UntravelledGlobalError:
                dumped = None
                self._unshared.add(id(obj))
            if dumped is not None:
                saved.append(dumped._replace(read=False))
                if dumped.pickled is None and kind not in LOCKS:
                    self._unshared.add(id(obj))
            if id(obj) in self._unshared:
                return None
            self.sent.add(key)
        return *key, saved


def _reduce_text_file(file: io.TextIOWrapper) -> Any:
    if file is sys.stdout or file is sys.stderr:
        return NotImplemented
    # cloudpickle would read all of it into the payload.
    raise pickle.PicklingError(f"cannot pickle the open file {file.name!r}")


def _ignore_data(_: object) -> str:
    return "none"
