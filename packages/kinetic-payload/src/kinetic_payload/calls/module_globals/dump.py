"""Pickle the globals of imported modules that code by value reads, each by itself."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Final

from kinetic_payload.calls.module_globals.initial_values import Kind, initial_of
from kinetic_payload.calls.module_globals.restore import (
    HINT,
    OF_MACHINE,
    Global,
    UsedGlobal,
    attributes_of,
    kind_of,
    mark_of,
    path_mark,
    same_literal,
    untravelled,
)
from kinetic_payload.calls.rebuild import lookup
from kinetic_payload.data.references import collecting

if TYPE_CHECKING:
    from kinetic_payload.calls.pickler import CallPickler

LARGEST: Final = 1024 * 1024
"""The most bytes of a pickle that travels although nothing shows that the value was set since the import."""


def dump_globals(pickler: CallPickler, *, changed: bool) -> list[Global]:
    """Return the globals of imported modules that *pickler* found in code, and those that their values need.

    With *changed*, those that the program set come, too: code by reference may read them. Leave out values that the import gives
    in any case. For a value that is large, or cannot be pickled, only the mark travels: the job's import may give
    an equal value. So it does for a value that the import computes from the machine: the job has its own.

    Raises:
        UntravelledGlobalError: A global was certainly set since the import, and cannot be pickled.
    """
    done: dict[tuple[str, str], Global | None] = {}
    _dump_used(pickler, done)
    if changed:
        pickler.used_globals.update(dict.fromkeys(pickler.changes.changed()))
        _dump_used(pickler, done)
    return [dumped for dumped in done.values() if dumped is not None]


def _dump_used(pickler: CallPickler, done: dict[tuple[str, str], Global | None]) -> None:
    while waiting := [
        (key, used) for used in pickler.used_globals if (key := used.key) not in done
    ]:
        for key, used in waiting:
            done[key] = None if key in pickler.sent else dump_global(used, pickler)


def dump_global(used: UsedGlobal, pickler: CallPickler, *, shared: bool = False) -> Global | None:
    """Return a global for the job, or None if the job's import gives its value; *shared*: objects refer to it.

    Raises:
        UntravelledGlobalError: See `dump_globals`.
    """
    key = used.key
    value = lookup(used.module, used.name)
    reference = pickler.reference(value)
    if reference is not None and reference[:2] == key:
        return None
    initial = initial_of(used.module, used.name)
    if initial.kind is Kind.LITERAL and same_literal(initial.value, value):
        return None
    evident = key in pickler.changes.evident
    certain = initial.kind in (Kind.LITERAL, Kind.NOTHING) or evident
    if not (used.read or evident or pickler.is_small(value, LARGEST)):
        if certain:
            _left_out(
                key, value, f"is larger than {LARGEST / 1e6:,.0f} MB, or cannot be pickled", pickler
            )
        return None
    token = collecting.set(None)
    try:
        mark = mark_of(value)
    finally:
        collecting.reset(token)
    rebound = pickler.changes.rebinds(used)
    dumped = Global(*key, kind_of(value), mark, None, read=used.read, rebound=rebound)
    if initial.kind is Kind.MACHINE and not evident:
        mark = path_mark(value, pickler.changes.where.roots) or mark
        return None if used.assigned else dumped._replace(mark=mark, why=OF_MACHINE)
    stream = io.BytesIO()
    before = pickler.collected
    try:
        pickler.dump_apart(value, stream, used)
    except Exception as error:
        if used.assigned:
            return None  # If it is missing, the code assigns it itself.
        why = f"cannot be pickled ({type(error).__name__}: {error})"
        if not used.read:
            _left_out(key, value, why, pickler)
            return None
        dumped = dumped._replace(why=why)
        if certain:
            nothing = initial.kind is Kind.NOTHING
            own = "nothing of that name" if nothing else kind_of(initial.value)
            raise untravelled(dumped, own) from error
        kind = type(value)
        of_project = pickler.goes_by_value(kind) or pickler.is_of_project(kind.__module__)
        return dumped._replace(attributes=attributes_of(value) if of_project else ())
    if stream.tell() > LARGEST and not (certain or shared):
        return dumped._replace(why=f"is large ({stream.tell() / 1e6:,.1f} MB pickled)")
    # In the job, a `Data` is another value: a path.
    mark = dumped.mark if pickler.collected == before else ""
    return dumped._replace(pickled=stream.getvalue(), mark=mark)


def _left_out(key: tuple[str, str], value: object, why: str, pickler: CallPickler) -> None:
    """Warn that the value of a global does not travel."""
    pickler.warnings.append(
        f"{'.'.join(key)} was set since the import: it is {kind_of(value)}, and {why}. The job has the value that its "
        f"own import gives. {HINT}"
    )
