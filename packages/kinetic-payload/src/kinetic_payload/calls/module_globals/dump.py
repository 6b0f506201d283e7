"""Pickle the globals of imported modules that code by value reads, each by itself."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, Final

from kinetic_payload.calls.module_globals.initial_values import Kind, initial_of
from kinetic_payload.calls.module_globals.restore import (
    OF_MACHINE,
    Global,
    UsedGlobal,
    attributes_of,
    kind_of,
    mark_of,
    path_mark,
    untravelled,
)
from kinetic_payload.calls.rebuild import lookup
from kinetic_payload.data.references import collecting

if TYPE_CHECKING:
    from kinetic_payload.calls.pickler import CallPickler

LARGEST: Final = 1024 * 1024
"""The most bytes of a pickle that travels although nothing shows that the value was set since the import."""


def dump_globals(pickler: CallPickler) -> list[Global]:
    """Return the globals of imported modules that *pickler* found in code, and those that their values need.

    Leave out values that the import gives in any case. For a value that is large, or cannot be pickled, only the
    mark travels: the job's import may give an equal value. So it does for a value that the import computes from
    the machine: the job has its own.

    Raises:
        UntravelledGlobalError: A global was certainly set since the import, and cannot be pickled.
    """
    done: dict[UsedGlobal, Global | None] = {}
    while waiting := [used for used in pickler.used_globals if used not in done]:
        for used in waiting:
            done[used] = _dump_global(used, pickler)
    return [dumped for dumped in done.values() if dumped is not None]


def _dump_global(used: UsedGlobal, pickler: CallPickler) -> Global | None:
    value = lookup(used.module, used.name)
    reference = pickler.reference(value)
    if reference is not None and reference[:2] == (used.module.__name__, used.name):
        return None
    initial = initial_of(used.module, used.name)
    if initial.kind is Kind.LITERAL and _same_literal(initial.value, value):
        return None
    certain = initial.kind in (Kind.LITERAL, Kind.NOTHING)
    token = collecting.set(None)
    try:
        mark = mark_of(value)
    finally:
        collecting.reset(token)
    dumped = Global(used.module.__name__, used.name, kind_of(value), mark, None)
    if initial.kind is Kind.MACHINE:
        mark = path_mark(value, pickler.roots) or mark
        return None if used.assigned else dumped._replace(mark=mark, why=OF_MACHINE)
    try:
        size = pickler.measure(value)
    except Exception as error:
        if used.assigned:
            return None  # If it is missing, the code assigns it itself.
        dumped = dumped._replace(why=f"cannot be pickled ({type(error).__name__}: {error})")
        if certain:
            nothing = initial.kind is Kind.NOTHING
            own = "nothing of that name" if nothing else kind_of(initial.value)
            raise untravelled(dumped, own) from error
        kind = type(value)
        of_project = pickler.goes_by_value(kind) or pickler.is_of_project(kind.__module__)
        return dumped._replace(attributes=attributes_of(value) if of_project else ())
    if size > LARGEST and not certain:
        return dumped._replace(why=f"is large ({size / 1e6:,.1f} MB pickled)")
    stream = io.BytesIO()
    before = pickler.collected
    pickler.dump_apart(value, stream)
    # In the job, a `Data` is another value: a path.
    mark = dumped.mark if pickler.collected == before else ""
    return dumped._replace(pickled=stream.getvalue(), mark=mark)


def _same_literal(initial: Any, value: Any) -> bool:
    try:
        same = type(initial) is type(value) and bool(initial == value)
    except Exception:  # noqa: BLE001 - arrays, for instance, are not simply equal
        return False
    return same and repr(initial) == repr(value)  # 1 and 1.0 are equal.
