"""Removal of stored objects by their age: contexts, data, logs and outputs, each complete or not at all.

An object is removed only in the generation that was listed, so one that was renewed or written meanwhile stays.
Marks of empty folders in mounted data, which no list shows, are left to the rules of the bucket.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass
from typing import Final

from kinetic_payload.errors import ObjectNotFoundError, PreconditionFailedError, RecordError
from kinetic_payload.layout import (
    GROUPS,
    PARTS,
    PATHWAYS_SCRATCH,
    RESERVED_PREFIXES,
    JobObjects,
    context_object,
    context_part,
    context_parts,
    data_marker,
    data_prefix,
    kind_of,
)
from kinetic_payload.limits import read_record
from kinetic_payload.project.parts import parsed_parts
from kinetic_payload.stores.store import ObjectInfo, Store
from kinetic_payload.threads import parallel_map

JOB_KINDS: Final = ("record", "payload", "input", "value")
_PREFIXES: Final = {
    "context": ("contexts/",),
    "part": (PARTS,),
    "data": ("data-markers/", "data/"),
    "log": ("logs/",),
    "output": ("outputs/",),
}
_MANY: Final = 100
"""Objects from which on a unit is removed in several threads, beside other units."""


@dataclass
class Unit:
    """What is removed as a whole: a context, a `Data` with its markers, the logs, outputs or objects of one job."""

    kind: str
    owner: str
    """A digest, or the id of a job or batch."""
    objects: int
    size: int
    newest: float
    """When the last of its objects was written or renewed, by the store's clock."""
    last: ObjectInfo


def units_of(store: Store, kind: str) -> list[Unit]:
    """Return the units of a kind (`context`, `data`, `log`, `output`, `job`) in *store*. Nothing else is listed."""
    units: dict[str, Unit] = {}
    kinds = JOB_KINDS if kind == "job" else (kind,)
    for info in _job_objects(store) if kind == "job" else _listed(store, *_PREFIXES[kind]):
        found = kind_of(info.name)
        if found is None or found[0] not in kinds:
            continue
        unit = units.setdefault(found[1], Unit(kind, found[1], 0, 0, info.updated, info))
        unit.objects += 1
        unit.size += info.size
        unit.newest = max(unit.newest, info.updated)
    return list(units.values())


def unused_parts(store: Store, oldest: float, *, without: Set[str] = frozenset()) -> Iterator[Unit]:
    """Iterate over the parts of contexts that are not used since *oldest*, and that no context in *store* has.

    *without* are the digests of contexts that do not count. If the list of a context cannot be read, nothing is unused.
    """
    # Listed before the contexts: a submit renews the old parts that it uses, and then writes the list that names them.
    old = [unit for unit in units_of(store, "part") if unit.newest < oldest]
    used = set[str]()
    for unit in units_of(store, "context") if old else ():
        if unit.owner not in without:
            try:
                data = read_record(store, context_parts(unit.owner))
                used.update(parsed_parts(data, unit.owner)[0])
            except ObjectNotFoundError:
                continue  # It is one archive, or was removed meanwhile.
            except RecordError:
                return
    yield from (unit for unit in old if context_part(unit.owner) not in used)


def remove(store: Store, unit: Unit, oldest: float) -> tuple[int, int]:
    """Remove the objects of *unit*, markers first, unless one is not older than *oldest*; return number and bytes."""
    removed: list[int] = []

    def delete(info: ObjectInfo) -> bool:
        try:
            if info.updated < oldest and store.delete(info.name, if_generation=info.generation):
                removed.append(info.size)
        except PreconditionFailedError:
            return False
        return True

    def objects(prefixes: tuple[str, ...]) -> Iterator[ObjectInfo]:
        if unit.objects == 1:
            return iter([unit.last] if unit.last.name.startswith(prefixes) else [])
        own = (unit.kind, unit.owner)
        return (info for info in _listed(store, *prefixes) if kind_of(info.name) == own)

    first, rest = _places(unit)
    if unit.objects > 1 and any(info.updated >= oldest for info in objects((*first, *rest))):
        return 0, 0
    # A marker that is not this generation's any more vouches for data that was renewed.
    if all(delete(info) for info in list(objects(first))):
        threads = store.concurrency if unit.objects > _MANY else 1
        parallel_map(delete, objects(rest), threads=threads)
    return len(removed), sum(removed)


def _places(unit: Unit) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the prefixes of what goes first, and of the rest."""
    if unit.kind == "data":
        return (data_marker(unit.owner),), (data_prefix(unit.owner),)
    names = JobObjects(unit.owner)
    places = {
        "context": context_object(unit.owner).removesuffix("zip"),
        "part": context_part(unit.owner),
        "log": names.logs,
        "output": names.outputs,
    }
    return (), (places[unit.kind],)


def _listed(store: Store, *prefixes: str) -> Iterator[ObjectInfo]:
    for prefix in prefixes:
        yield from store.list(prefix)


def _job_objects(store: Store) -> Iterator[ObjectInfo]:
    """Iterate over the objects in folders of jobs, and of batches, without listing what jobs share."""
    skipped = sorted((*RESERVED_PREFIXES, f"{PATHWAYS_SCRATCH}/"))
    starts = ["", *(f"{prefix[:-1]}0" for prefix in skipped)]  # "0" comes right after "/".
    for start, end in zip(starts, [*skipped, None], strict=True):
        for info in store.list(start_after=start):
            if end is not None and info.name >= end:
                break
            yield info
    yield from store.list(GROUPS)
