"""Pickle a call: collect its `Data`, and name what cannot be pickled."""

from __future__ import annotations

import functools
import io
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import replace
from hashlib import sha256
from itertools import chain
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import cloudpickle

from kinetic_payload.calls.by_reference import Importability
from kinetic_payload.calls.call import CallHeader, platform_name
from kinetic_payload.calls.classes.introspection import UnrestorableClassError
from kinetic_payload.calls.classes.reduce import ByteCounter
from kinetic_payload.calls.module_globals.changes import Changes
from kinetic_payload.calls.module_globals.dump import dump_globals
from kinetic_payload.calls.module_globals.restore import UntravelledGlobalError
from kinetic_payload.calls.pickler import CallPickler, SharingPickler
from kinetic_payload.calls.rebuild import wrappings
from kinetic_payload.calls.unpicklable import advise, describe, find_culprit, variables_of
from kinetic_payload.calls.unpickle import python_version
from kinetic_payload.data.references import DataRef, collecting
from kinetic_payload.errors import PayloadError
from kinetic_payload.frozen import frozen
from kinetic_payload.project.roots import main_namespace

if TYPE_CHECKING:
    from kinetic_payload.project.roots import ProjectPlan

_CHUNK: Final = 1024 * 1024
_EXPLAINED: Final = (MemoryError, UnrestorableClassError, UntravelledGlobalError)
_IN_MEMORY: Final = 64 * 1024 * 1024
"""Pickles up to this size never touch a disk; larger ones go to a file that has no name."""


@frozen()
class FoundData:
    """A `Data` found while pickling, or a volume."""

    key: str
    value: Any
    mount: str | None = None


class DumpedCall:
    """A pickled call. Its header is completed when it is written, after its data were uploaded."""

    def __init__(
        self,
        stream: BinaryIO,
        header: CallHeader,
        sizes: Callable[[], Iterator[tuple[str, int]]],
        warnings: Sequence[str],
        dump_input: Callable[[str, tuple[Any, ...], dict[str, Any]], tuple[bytes, tuple[str, ...]]],
        data: list[FoundData],
        late_paths: Sequence[str],
    ) -> None:
        self._stream = stream
        self._header = header
        self._sizes = sizes
        self._data = data
        self._late_paths = late_paths
        self.dump_input = dump_input
        """Pickles further arguments of the call, of an input with this name, for `load_call`; returns the keys of the
        `Data` in them, too."""
        self.warnings = tuple(warnings)
        """About values in modules that the program set, and that do not travel."""
        self.size = stream.seek(0, 2)
        """Bytes of the pickle."""

    @property
    def data(self) -> tuple[FoundData, ...]:
        """The volumes, then each `Data` of the arguments, the code and the inputs, once."""
        return tuple(self._data)

    def write(
        self,
        stream: BinaryIO,
        *,
        refs: Sequence[DataRef],
        context_digest: str | None,
        kinetic_version: str,
    ) -> str:
        """Write the payload, header and pickle, and return its SHA-256."""
        header = replace(
            self._header,
            data=tuple(refs),
            context_digest=context_digest,
            kinetic=kinetic_version,
            late_paths=tuple(self._late_paths),
        )
        digest = sha256()
        self._stream.seek(0)
        chunk = header.encode() + b"\n"
        while chunk:
            digest.update(chunk)
            stream.write(chunk)
            chunk = self._stream.read(_CHUNK)
        return digest.hexdigest()

    def oversize_warning(self, limit_mb: float) -> str | None:
        """Return a warning if the pickle has more than *limit_mb* megabytes, else None."""
        if self.size <= limit_mb * 1e6:
            return None
        largest = sorted(self._sizes(), key=lambda named: -named[1])[:5]
        named = ", ".join(f"{name} ({size / 1e6:,.1f} MB)" for name, size in largest if size > 1e5)
        return (
            f"The call of {self._header.function} pickles to {self.size / 1e6:,.1f} MB"
            + (f"; the largest parts: {named}. " if named else ". ")
            + "Save large data to a file and pass it as kinetic.Data, which is uploaded once; "
            "KINETIC_PAYLOAD_SIZE_WARN_MB sets the limit of this warning."
        )

    def close(self) -> None:
        """Delete the pickle."""
        self._stream.close()


def dump_call(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    plan: ProjectPlan,
    ships: Callable[[Path], bool],
    data_type: type | tuple[type, ...] = (),
    volumes: Mapping[str, Any] | None = None,
) -> DumpedCall:
    """Pickle the call of *function* for a worker that has the snapshot of *plan*'s project, if any.

    *ships* tells whether the snapshot holds a file: a module whose file is ignored travels by value.

    Raises:
        PayloadError: Something cannot be pickled; the message names it.
    """
    where = Importability(plan.root, plan.paths, ships)
    changes = Changes(where, main_namespace(function), data_type)
    kind = SharingPickler if changes.objects else CallPickler
    new_pickler = functools.partial(kind, changes=changes)
    alone = copy(changes)
    alone.objects = {}  # To name what cannot be pickled, a part of it is pickled as it is.
    prober_of = functools.partial(new_pickler, ByteCounter(), collect=_Collector([]), changes=alone)
    inner = _innermost(function)
    title = str(inner.__qualname__)

    def arguments(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        for index, value in enumerate(args):
            yield _parameter(function, index), value
        yield from kwargs.items()

    found = [
        FoundData(f"d{index}", data, mount)
        for index, (mount, data) in enumerate((volumes or {}).items())
    ]
    sent: set[tuple[str, str]] = set()
    stream: Any = SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115 - closed by `DumpedCall.close`
    try:
        call = function, tuple(args), dict(kwargs)
        parts = chain([(title, function)], arguments(args, kwargs))  # Lazy: it reads annotations.
        with _explained(title, parts, prober_of, function):
            warnings, _ = _dump(call, stream, new_pickler, found, sent, changed=True)
    except BaseException:
        stream.close()
        raise

    def dump_input(
        name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[bytes, tuple[str, ...]]:
        own = io.BytesIO()
        with _explained(f"{name} of {title}", arguments(args, kwargs), prober_of):
            # What the call has set in modules is set before an input is loaded.
            _, keys = _dump((args, kwargs), own, new_pickler, found, set(sent), changed=False)
        return own.getvalue(), keys

    spec = changes.main.get("__spec__")
    header = CallHeader(
        python=python_version(),
        cloudpickle=cloudpickle.__version__,
        kinetic="",
        function=title,
        module=getattr(inner, "__module__", None) or "",
        context_digest=None,
        paths=tuple(plan.paths),
        cwd=plan.cwd,
        main=plan.main,
        main_kind=plan.kind,
        main_name=spec.name if plan.kind == "module" and spec is not None else None,
        platform=platform_name(),
    )

    def sizes() -> Iterator[tuple[str, int]]:
        prober = prober_of()
        whole = prober.measure(function)
        for name, value in variables_of(inner, prober.travelling_globals):
            with suppress(Exception):  # An annotation, which may not travel at all.
                size = prober.measure(value)
                whole -= size
                yield name, size
        yield f"the code of {title}", whole
        for name, value in arguments(args, kwargs):
            yield f"argument {name!r}", prober.measure(value)

    return DumpedCall(stream, header, sizes, warnings, dump_input, found, where.late_paths)


def _dump(
    call: tuple[Any, ...],
    stream: BinaryIO,
    new_pickler: Callable[..., CallPickler],
    data: list[FoundData],
    sent: set[tuple[str, str]],
    *,
    changed: bool,
) -> tuple[list[str], tuple[str, ...]]:
    """Pickle *call*; add to *data* what it contains, and to *sent* the globals whose values travel with it.

    Return warnings, and the keys of the `Data` in it. With *changed*, the globals that the program set travel, whoever reads them.
    """
    names: frozenset[str] = frozenset()
    while True:
        collector = _Collector(data)
        pickler = new_pickler(stream, collect=collector, names=names, sent=set(sent))
        token = collecting.set(collector)
        try:
            pickler.dump(call)
            found = dump_globals(pickler, changed=changed)
        finally:
            collecting.reset(token)
        if pickler.wanted <= names:
            hints = pickler.hints()
            if hints or found:
                pickle.dump(hints, stream, pickle.HIGHEST_PROTOCOL)
            if found:
                pickle.dump(found, stream, pickle.HIGHEST_PROTOCOL)
            data[:] = collector.found
            sent |= pickler.sent
            return pickler.warnings, tuple(collector.used)
        # From a module outside the project, ship only the names that the code uses. They are known only
        # after everything was pickled, so pickle again.
        names |= pickler.wanted
        stream.seek(0)
        stream.truncate()


class _Collector:
    """Gives each `Data` one key, however often it occurs."""

    def __init__(self, found: Sequence[FoundData]) -> None:
        self.found = list(found)
        self.used: dict[str, None] = {}
        self._keys = {id(one.value): one.key for one in found if one.mount is None}

    def __call__(self, data: object) -> str:
        key = self._keys.get(id(data))
        if key is None:
            key = self._keys[id(data)] = f"d{len(self.found)}"
            self.found.append(FoundData(key, data))
        self.used[key] = None
        return key


def _innermost(function: Any) -> Any:
    """Return what *function* wraps, or its class if that has no name."""
    while isinstance(function, functools.partial):
        function = function.func
    *_, inner = wrappings(function)
    if isinstance(inner, functools.partial):
        return _innermost(inner)
    return inner if hasattr(inner, "__qualname__") else type(inner)


def _parameter(function: Any, index: int) -> str:
    import inspect

    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError, NameError):
        # From Python 3.14 on, a name in an annotation may be undefined.
        return f"args[{index}]"
    for position, parameter in enumerate(parameters):
        if parameter.kind is parameter.VAR_POSITIONAL:
            return f"{parameter.name}[{index - position}]"
        if position == index and parameter.kind is not parameter.KEYWORD_ONLY:
            return parameter.name
    return f"args[{index}]"


@contextmanager
def _explained(
    title: str,
    parts: Iterable[tuple[str, Any]],
    prober_of: Callable[[], CallPickler],
    function: object = None,
) -> Iterator[None]:
    """Raise an error that names which of the *parts*, one of them the *function*, cannot be pickled."""
    try:
        yield
    except _EXPLAINED:
        raise
    except Exception as error:
        pickler = prober_of()

        def probe(value: Any) -> Exception | None:
            try:
                pickler.measure(value)
            except MemoryError:
                raise
            except Exception as problem:  # noqa: BLE001 - user code may raise anything
                return problem
            return None

        for name, value in parts:
            culprit = find_culprit(name, value, probe, pickler.travelling_globals)
            if culprit is None:
                continue
            what = f"the function {title}" if value is function else f"argument {name!r} of {title}"
            problem = f"{type(culprit.error).__name__}: {culprit.error}".rstrip(": ")
            raise PayloadError(
                f"Cannot pickle {what}: {culprit.path} is {describe(culprit.piece)} ({problem}).",
                hint=advise(culprit),
            ) from error
        if isinstance(error, OSError):  # the disk, not the call
            raise
        raise PayloadError(
            f"Cannot pickle the call of {title}: {type(error).__name__}: {error}."
        ) from error
