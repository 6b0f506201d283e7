"""Removal of what is stored, by its kind and its age: `kinetic storage prune`.

```python
pruning = prepare_prune(settings, PruneOptions(kinds=["contexts"], older_than=timedelta(days=30)))
print(pruning.plan)       # what would go
print(pruning.apply())    # what went
```

What a job needs that has not ended stays, and so does what is not Kinetic's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kinetic.backends.registry import LOCAL, asked_for, entry_of
from kinetic.errors import (
    InvalidRequestError,
    JobError,
    KineticError,
    RecordError,
    UnavailableError,
)
from kinetic.home.collection import collect_caches
from kinetic.home.paths import Home
from kinetic.job_status import JobStatus
from kinetic.jobs.discover import open_existing
from kinetic.jobs.records import find_manifest, find_record
from kinetic.jobs.services import connect, jobs_location, look_limit
from kinetic.jobs.stop import clean_up, remove_objects, status_to_clean
from kinetic.retention.ages import DAY
from kinetic.retention.needs import SAFE_AGE, Needs, end_of_batch, read_needs, submitting
from kinetic.retention.removal import Unit, remove, units_of, unused_parts
from kinetic.storage.report import files_below
from kinetic.target import Target
from kinetic_payload.layout import JobObjects, group_of, is_digest, is_group_id
from kinetic_payload.records.encode import fields_of
from kinetic_payload.threads import parallel_map

if TYPE_CHECKING:
    from kinetic.jobs.services import Services
    from kinetic.settings.settings import Settings
    from kinetic_payload.stores.store import Location, Store

KINDS: Final = ("contexts", "data", "logs", "jobs", "outputs", "caches")
"""What can be removed. `jobs` are the records and values of ended jobs; `caches` are of this machine."""
_UNIT_KINDS: Final = {
    "contexts": "context",
    "data": "data",
    "logs": "log",
    "jobs": "job",
    "outputs": "output",
}
_NAMES: Final = {unit: kind for kind, unit in _UNIT_KINDS.items()}
_CLEAN_UP_SECONDS: Final = 180.0


@dataclass(frozen=True, kw_only=True)
class PruneOptions:
    """What is removed."""

    kinds: Sequence[str]
    """Of `KINDS`."""
    older_than: timedelta | None
    """Since when it was not written or used, or had ended; None: whenever that was."""


@dataclass
class Removal:
    """What goes, or went, of one kind."""

    what: str
    items: int = 0
    objects: int = 0
    size: int = 0
    """In bytes."""

    def add(self, objects: int, size: int, *, items: int = 1) -> None:
        """Count an item."""
        self.items += items
        self.objects += objects
        self.size += size


@dataclass
class Pruning:
    """What would be removed, and what removes it."""

    location: Location
    plan: list[Removal]
    units: list[Unit] = field(repr=False)
    oldest: float = field(repr=False)
    """By the store's clock: what was written or used later stays."""
    options: PruneOptions = field(repr=False)
    settings: Settings = field(repr=False)
    store: Store | None = field(repr=False)
    problems: list[str] = field(default_factory=list)
    """What could not be removed, after `apply`."""

    def apply(self) -> list[Removal]:
        """Remove it, except what was used since, or is needed now; return what went.

        Raises:
            KineticError: The store or the cluster cannot be reached. What went until then is gone.
        """
        removed = {kind: Removal(kind) for kind in self.options.kinds}
        if (self.units or "contexts" in removed) and self.store is not None:
            needs = _checked_needs(self.store, self.options)
            units = [unit for unit in self.units if not _is_needed(unit, needs)]
            threads, act = self.store.concurrency, partial(self._remove, self.store)
            for unit, went in zip(units, parallel_map(act, units, threads=threads), strict=True):
                if went is not None and went[0]:
                    removed[_NAMES[unit.kind]].add(*went)
            # After the contexts, whose parts they were.
            parts = [*unused_parts(self.store, self.oldest)] if "contexts" in removed else []
            for went in parallel_map(act, parts, threads=threads):
                if went is not None:
                    removed["contexts"].add(*went, items=0)
        if "caches" in removed:
            _visit_caches(self.settings, self.options, removed["caches"], dry_run=False)
        return [*removed.values()]

    def _remove(self, store: Store, unit: Unit) -> tuple[int, int] | None:
        """Return how many objects and bytes of *unit* went; None if that failed, or others removed it."""
        try:
            if unit.kind != "job":
                return remove(store, unit, self.oldest)
            return (unit.objects, unit.size) if self._clean_up(unit.owner, store) else None
        except UnavailableError:
            raise  # All others would wait as long.
        except KineticError as error:
            self.problems.append(f"{_NAMES[unit.kind]} {unit.owner}: {error.message}")
            return None

    def _clean_up(self, job_id: str, store: Store) -> bool:
        """Remove an ended job as `kinetic jobs cleanup` does; of a cluster that is gone, only the objects.

        Return whether it was there, and had not begun again.
        """
        from kinetic_k8s.errors import UnknownClusterError

        manifest = find_manifest(store, job_id) if is_group_id(job_id) else None
        found = find_record(store, job_id)
        if found is None:
            return False
        if manifest and end_of_batch(store, JobObjects(job_id), fields_of(manifest.data)) is None:
            return False  # `retry_failed` runs inputs again.
        try:
            services = self._connected(found.record.backend, Target.of(found.record))
        except UnknownClusterError:
            remove_objects(job_id, store)
            return True
        if manifest is not None:
            from kinetic.batches.handle import BatchHandle

            batch = BatchHandle(manifest.record, services, stored=manifest.data)
            _refuse_running(*(status for _, status in batch.statuses()))
            batch.cleanup()
            return True
        status = status_to_clean(found.record, services)
        _refuse_running(status)
        clean_up(
            found.record,
            services,
            resource=True,
            artifacts=True,
            timeout=_CLEAN_UP_SECONDS,
            poll_interval=0.5,
            status=status,
        )
        return True

    @cached_property
    def _connected(self) -> Callable[[str, Target], Services]:
        """Connects to each place of jobs once."""
        return cache(partial(connect, location=self.location, settings=self.settings))


def _refuse_running(*statuses: JobStatus) -> None:
    """Raise an error if one says that a job still runs: an outcome in a bucket may be somebody else's."""
    if not all(status.terminal for status in statuses):
        raise JobError("it still runs, and somebody else may have written its outcome.")


def prepare_prune(settings: Settings, options: PruneOptions) -> Pruning:
    """Look what would be removed from the place that *settings* name; nothing is changed.

    Raises:
        InvalidRequestError: It is not clear what is meant, or cannot be removed safely.
        KineticError: The store cannot be read.
    """
    backend = _checked_backend(settings, options)
    location = jobs_location(settings, backend)
    store = open_existing(location, look_limit())
    removals = {kind: Removal(kind) for kind in options.kinds}
    units: list[Unit] = []
    oldest = 0.0
    if store is not None and (kinds := [kind for kind in removals if kind != "caches"]):
        now = store.now()
        oldest = now - (options.older_than.total_seconds() if options.older_than else 0.0)
        # Listed before the needs are read: a job that is submitted meanwhile renews what it uses.
        listed = [unit for kind in kinds for unit in units_of(store, _UNIT_KINDS[kind])]
        needs = _checked_needs(store, options)
        units = [
            unit for unit in listed if not _is_needed(unit, needs) and _end_of(unit, needs) < oldest
        ]
        if location.kind == "gs" and not settings.namespace.is_default:
            units = _of_namespace(units, store, settings)
    for unit in units:
        removals[_NAMES[unit.kind]].add(unit.objects, unit.size)
    if store is not None and "contexts" in removals:
        gone = {unit.owner for unit in units if unit.kind == "context"}
        for part in unused_parts(store, oldest, without=gone):
            removals["contexts"].add(part.objects, part.size, items=0)
    if "caches" in removals:
        _visit_caches(settings, options, removals["caches"], dry_run=True)
    return Pruning(location, [*removals.values()], units, oldest, options, settings, store)


def _checked_backend(settings: Settings, options: PruneOptions) -> str:
    """Return the backend whose store is meant, after a check of the options."""
    unknown = sorted({*options.kinds} - {*KINDS})
    if unknown or not options.kinds:
        raise InvalidRequestError(
            f"Nothing was removed: {unknown[0]!r} is not a kind."
            if unknown
            else "Nothing was removed: no kind is named.",
            hint=f"Name some of: {', '.join(KINDS)}.",
        )
    seconds = None if options.older_than is None else options.older_than.total_seconds()
    shared = [kind for kind in ("contexts", "data") if kind in options.kinds]
    if shared and seconds is not None and seconds < SAFE_AGE:
        raise InvalidRequestError(
            f"Nothing was removed: {' and '.join(shared)} of less than {SAFE_AGE / DAY:.0f} days may be in use by a "
            "submit that shows no sign of it yet.",
            hint=f"Name at least {SAFE_AGE / DAY:.0f} days, or all ages while nobody submits.",
        )
    if seconds is not None and seconds < 0:
        raise InvalidRequestError("Nothing was removed: an age cannot be negative.")
    named = settings.backend.value
    if named is None and Target.in_settings(settings).named:
        raise InvalidRequestError(
            "Nothing was removed: the settings name this machine and a cluster.",
            hint="Choose one of them: --local or --cluster, or KINETIC_BACKEND.",
        )
    backend = LOCAL if named is None else asked_for(named, settings.backend.source).name
    if "caches" in options.kinds and not entry_of(backend).on_this_machine:
        raise InvalidRequestError(
            "Nothing was removed: caches are on this machine, not in a bucket.",
            hint="Remove them by a command of their own, with --local.",
        )
    return backend


def _checked_needs(store: Store, options: PruneOptions) -> Needs:
    """Return what jobs need.

    Raises:
        JobError: It is not clear, or a submit is under way whose contexts and data are not known.
    """
    needs = read_needs(store)
    if needs.unclear and {"contexts", "data"} & {*options.kinds}:
        more = f", and {len(needs.unclear) - 1} more" if len(needs.unclear) > 1 else ""
        raise JobError(
            f"Nothing was removed: what a job needs is not known. {needs.unclear[0]}{more}",
            hint="Remove that job first: kinetic jobs cleanup JOB_ID, or kinetic batches cleanup GROUP_ID. If its cluster "
            f"is gone, delete its folder in {store.location}.",
        )
    if options.older_than is None and {"contexts", "data"} & {*options.kinds}:
        under_way = next(submitting(store, needs, store.now()), None)
        if under_way is not None:
            raise JobError(
                f"Nothing was removed: {under_way} is being submitted, and what it needs is not known yet.",
                hint=f"Try again later, or remove what is older than {SAFE_AGE / DAY:.0f} days. What a killed submit "
                "leaves goes by itself after a day.",
            )
    return needs


def _is_needed(unit: Unit, needs: Needs) -> bool:
    if unit.kind in ("context", "data"):
        return unit.owner in (needs.contexts if unit.kind == "context" else needs.data)
    if unit.kind == "output" and unit.owner in needs.outputs:
        return True
    return needs.job(unit.owner) or (unit.kind == "job" and unit.owner not in needs.ended)


def _end_of(unit: Unit, needs: Needs) -> float:
    return needs.ended[unit.owner] if unit.kind == "job" else unit.newest


def _of_namespace(units: Sequence[Unit], store: Store, settings: Settings) -> list[Unit]:
    """Return what jobs share, and what belongs to jobs that a list of jobs shows with these settings."""

    def is_listed(job_id: str) -> bool:
        try:
            found = find_record(store, job_id)
        except RecordError:
            return False
        return found is not None and (
            found.record.namespace == settings.namespace.value
            or entry_of(found.record.backend).on_this_machine
        )

    jobs = {unit.owner: group_of(unit.owner)[0] or unit.owner for unit in units}
    found = sorted({job for owner, job in jobs.items() if not is_digest(owner)})
    listed = parallel_map(is_listed, found, threads=store.concurrency)
    known = dict(zip(found, listed, strict=True))
    return [unit for unit in units if known.get(jobs[unit.owner], True)]


def _visit_caches(
    settings: Settings, options: PruneOptions, removal: Removal, *, dry_run: bool
) -> None:
    """Remove what was not used for long from the caches of this machine, or only count it."""

    def spare(path: Path) -> bool:
        sizes = [status.st_size for _, status in files_below(path)]
        removal.add(len(sizes), sum(sizes))
        return dry_run

    # What was used within a day may be about to be read.
    age = max(DAY, options.older_than.total_seconds() if options.older_than else 0.0)
    collect_caches(Home(settings.home.value), time.time(), age, spare)
