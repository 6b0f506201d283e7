"""Pickle a call: collect its `Data`, and name what will not pickle."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import cloudpickle

from kinetic_payload.calls.by_reference import Importability
from kinetic_payload.calls.call import (
    CallHeader,
    DumpedCall,
    FoundData,
    platform_name,
    python_version,
)
from kinetic_payload.calls.classes.parts import RecursiveAliasError, UnrestorableClassError
from kinetic_payload.calls.code import wrappings
from kinetic_payload.calls.global_pickler import dump_globals
from kinetic_payload.calls.module_globals import UntravelledGlobalError
from kinetic_payload.calls.pickler import CallPickler
from kinetic_payload.calls.unpicklable import advise, describe, find_culprit
from kinetic_payload.calls.value_pickler import Sink
from kinetic_payload.data.references import collecting
from kinetic_payload.errors import PayloadError
from kinetic_payload.project.roots import main_namespace

if TYPE_CHECKING:
    from kinetic_payload.project.roots import ProjectPlan

DataType = type | tuple[type, ...]


def dump(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    plan: ProjectPlan,
    ships: Callable[[Path], bool],
    data_type: DataType,
    volumes: Mapping[str, Any],
    stream: BinaryIO,
) -> DumpedCall:
    """Pickle the call into *stream*; see `calls.dump_call`."""
    where = Importability(plan.root, plan.paths, ships)
    main = main_namespace(function)
    pickler_to = functools.partial(CallPickler, where=where, data_type=data_type, main=main)
    parts = functools.partial(_parts, function, args, kwargs)
    title = name_of(function)
    try:
        collector = _dump((function, args, kwargs), stream, pickler_to, volumes)
    except (MemoryError, RecursiveAliasError, UnrestorableClassError, UntravelledGlobalError):
        raise
    except Exception as error:
        explained = _explain(error, title, parts(), _prober(pickler_to))
        if explained is None:
            raise
        raise explained from error
    spec = main.get("__spec__")
    header = CallHeader(
        python=python_version(),
        cloudpickle=cloudpickle.__version__,
        kinetic="",
        function=title,
        module=getattr(_innermost(function), "__module__", None) or "",
        context_digest=None,
        paths=tuple(plan.paths),
        cwd=plan.cwd,
        main=plan.main,
        main_kind=plan.kind,
        main_name=spec.name if plan.kind == "module" and spec is not None else None,
        late_paths=tuple(where.late_paths),
        platform=platform_name(),
    )
    return DumpedCall(
        stream,
        header,
        collector.found,
        lambda: [
            (_label(index, name), _prober(pickler_to).measure(part))
            for index, (name, part) in enumerate(parts())
        ],
    )


def _dump(
    call: tuple[Any, ...],
    stream: BinaryIO,
    pickler_to: Callable[..., CallPickler],
    volumes: Mapping[str, Any],
) -> _Collector:
    names: frozenset[str] = frozenset()
    while True:
        collector = _Collector(volumes)
        pickler = pickler_to(stream, collect=collector, names=names)
        token = collecting.set(collector)
        try:
            pickler.dump(call)
            found = dump_globals(pickler)
        finally:
            collecting.reset(token)
        if pickler.wanted <= names:
            hints = pickler.hints()
            if hints or found:
                pickle.dump(hints, stream, pickle.HIGHEST_PROTOCOL)
            if found:
                pickle.dump(found, stream, pickle.HIGHEST_PROTOCOL)
            return collector
        # A module outside the project: only after everything was pickled is it known what of it
        # the code needs.
        names |= pickler.wanted
        stream.seek(0)
        stream.truncate()


class _Collector:
    """Gives each `Data` its key, the same one however often it is met."""

    def __init__(self, volumes: Mapping[str, Any]) -> None:
        self.found = [
            FoundData(f"d{index}", data, mount)
            for index, (mount, data) in enumerate(volumes.items())
        ]
        self._keys: dict[int, str] = {}

    def __call__(self, data: object) -> str:
        key = self._keys.get(id(data))
        if key is None:
            key = self._keys[id(data)] = f"d{len(self.found)}"
            self.found.append(FoundData(key, data))
        return key


def name_of(function: Any) -> str:
    """Return what to call *function* in messages."""
    inner = _innermost(function)
    return str(getattr(inner, "__qualname__", None) or type(inner).__qualname__)


def _innermost(function: Any) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    *_, inner = wrappings(function)
    if isinstance(inner, functools.partial):
        return _innermost(inner)
    return inner if hasattr(inner, "__qualname__") else type(inner)


def _parts(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Iterator[tuple[str, Any]]:
    yield name_of(function), function
    for index, value in enumerate(args):
        yield _parameter(function, index), value
    yield from kwargs.items()


def _parameter(function: Any, index: int) -> str:
    import inspect

    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return f"args[{index}]"
    for position, parameter in enumerate(parameters):
        if parameter.kind is parameter.VAR_POSITIONAL:
            return f"{parameter.name}[{index - position}]"
        if position == index and parameter.kind is not parameter.KEYWORD_ONLY:
            return parameter.name
    return f"args[{index}]"


def _explain(
    error: Exception,
    title: str,
    named: Iterable[tuple[str, Any]],
    pickler: CallPickler,
) -> PayloadError | None:
    def probe(value: Any) -> Exception | None:
        try:
            pickler.measure(value)
        except MemoryError:
            raise
        except Exception as problem:  # noqa: BLE001 - user code raises what it likes
            return problem
        return None

    for index, (name, value) in enumerate(named):
        culprit = find_culprit(name, value, probe, pickler.travelling_globals)
        if culprit is None:
            continue
        what = f"argument {name!r} of {title}" if index else f"the function {title}"
        said = f"{type(culprit.error).__name__}: {culprit.error}".rstrip(": ")
        return PayloadError(
            f"Cannot pickle {what}: {culprit.path} is {describe(culprit.piece)} ({said}).",
            hint=advise(culprit),
        )
    if isinstance(error, OSError):  # the disk, not the call
        return None
    return PayloadError(f"Cannot pickle the call of {title}: {type(error).__name__}: {error}.")


def _prober(pickler_to: Callable[..., CallPickler]) -> CallPickler:
    return pickler_to(Sink(), collect=_Collector({}))


def _label(index: int, name: str) -> str:
    return f"argument {name!r}" if index else f"the code of {name}"
