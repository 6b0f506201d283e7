"""Pickle the globals of imported modules that code by value reads, each by itself."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, Final

from kinetic_payload.calls.module_globals.initial_values import Kind, initial_of
from kinetic_payload.calls.module_globals.restore import (
    Global,
    UsedGlobal,
    attributes_of,
    kind_of,
    mark_of,
    untravelled,
)
from kinetic_payload.calls.rebuild import lookup
from kinetic_payload.data.references import collecting

if TYPE_CHECKING:
    from kinetic_payload.calls.pickler import CallPickler

LARGEST: Final = 1024 * 1024
"""Bytes of a pickle that travels although nothing shows that the value was set since the import."""


def dump_globals(pickler: CallPickler) -> list[Global]:
    """Return the globals that *pickler* found in the code of imported modules, and those that they need.

    Values that the import gives in any case are left out, and so are those that it computes from the machine:
    the job has its own. Of a value that is large, or cannot be pickled, only the mark travels: the import may
    give the same.

    Raises:
        UntravelledGlobalError: One was certainly set since the import, and cannot be pickled.
    """
    done: dict[UsedGlobal, Global | None] = {}
    while waiting := [one for one in pickler.used_globals if one not in done]:
        for one in waiting:
            done[one] = _dumped(one, pickler)
    return [one for one in done.values() if one is not None]


def _dumped(used: UsedGlobal, pickler: CallPickler) -> Global | None:
    value = lookup(used.module, used.name)
    reference = pickler.reference(value)
    if reference is not None and reference[:2] == (used.module.__name__, used.name):
        return None
    initial = initial_of(used.module, used.name)
    if initial.kind is Kind.MACHINE or (
        initial.kind is Kind.LITERAL and _alike(initial.value, value)
    ):
        return None
    certain = initial.kind in (Kind.LITERAL, Kind.NOTHING)
    one = Global(used.module.__name__, used.name, kind_of(value), _mark(value), None)
    try:
        size = pickler.measure(value)
    except Exception as error:
        if used.assigned:
            return None  # The code makes it itself if it is missing.
        one = one._replace(why=f"cannot be pickled ({type(error).__name__}: {error})")
        if certain:
            nothing = initial.kind is Kind.NOTHING
            own = "nothing of that name" if nothing else kind_of(initial.value)
            raise untravelled(one, own) from error
        kind = type(value)
        ours = pickler.goes_by_value(kind) or pickler.is_of_project(kind.__module__)
        return one._replace(attributes=attributes_of(value) if ours else ())
    if size > LARGEST and not certain:
        return one._replace(why=f"is large ({size / 1e6:,.1f} MB pickled)")
    return _pickled(one, value, pickler)


def _alike(initial: Any, value: Any) -> bool:
    try:
        same = type(initial) is type(value) and bool(initial == value)
    except Exception:  # noqa: BLE001 - arrays, for instance, are not simply equal
        return False
    return same and repr(initial) == repr(value)  # 1 and 1.0 are equal.


def _pickled(one: Global, value: Any, pickler: CallPickler) -> Global:
    stream = io.BytesIO()
    before = pickler.collected
    pickler.dump_apart(value, stream)
    # In the job, a `Data` is another value: a path.
    mark = one.mark if pickler.collected == before else ""
    return one._replace(pickled=stream.getvalue(), mark=mark)


def _mark(value: Any) -> str:
    token = collecting.set(None)
    try:
        return mark_of(value)
    finally:
        collecting.reset(token)
