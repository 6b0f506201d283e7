"""Find batches: all that have a manifest in the stores of the settings."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cache, partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from kinetic.batches.handle import BatchHandle
from kinetic.jobs.discover import ALL_JOBS, find_jobs, of_backends, open_existing
from kinetic.jobs.records import StoredRecord, find_manifest
from kinetic.jobs.services import connect, jobs_location, look_limit
from kinetic.target import Target
from kinetic_payload.errors import InvalidRequestError, RecordError
from kinetic_payload.layout import GROUPS, is_group_id
from kinetic_payload.threads import parallel_map

if TYPE_CHECKING:
    from kinetic.jobs.handle import JobHandle
    from kinetic.names import Selection
    from kinetic.settings.settings import Settings
    from kinetic_payload.records.batch import GroupManifest
    from kinetic_payload.stores.store import Store

log = logging.getLogger("kinetic")


def find_batches(settings: Settings) -> list[BatchHandle]:
    """Return all batches, newest first, from the stores in which `list_jobs` looks.

    A batch whose manifest cannot be read is skipped with a warning.
    """
    return _merged(of_backends(settings, _batches_of))


def find_jobs_and_batches(
    settings: Settings,
    selection: Selection = ALL_JOBS,
    ended: Mapping[str, JobHandle] = MappingProxyType({}),
) -> tuple[list[JobHandle], list[BatchHandle]]:
    """Return the jobs of *selection* and all batches, each newest first; a store that cannot be reached is tried once.

    *ended* is as for `find_jobs`.
    """
    places: list[list[BatchHandle]] = []
    jobs = find_jobs(
        settings,
        also=lambda *where: places.append(_batches_of(*where)),
        selection=selection,
        ended=ended,
    )
    return jobs, _merged(places)


def _merged(places: list[list[BatchHandle]]) -> list[BatchHandle]:
    found = {batch.group_id: batch for batches in places for batch in batches}
    return sorted(found.values(), key=lambda batch: batch._manifest.created_at, reverse=True)


def _batches_of(backend: str, settings: Settings) -> list[BatchHandle]:
    location = jobs_location(settings, backend)
    store = open_existing(location, look_limit())
    if store is None:
        return []
    names = (folder.removeprefix(GROUPS).rstrip("/") for folder in store.folders(GROUPS))
    found = parallel_map(
        partial(_read, store), filter(is_group_id, names), threads=store.concurrency
    )
    # Batches of one cluster share a connection.
    connected = cache(partial(connect, location=location, settings=settings))
    handles = []
    for stored in found:
        if stored is not None:
            job = stored.record.job_record
            try:
                services = connected(job.backend, Target.of(job))
                handles.append(BatchHandle(stored.record, services, stored=stored.data))
            except InvalidRequestError as error:  # The backend is one of another version.
                log.warning("The batch %s is left out: %s", job.job_id, error)
    return handles


def _read(store: Store, group_id: str) -> StoredRecord[GroupManifest] | None:
    try:
        return find_manifest(store, group_id)
    except RecordError as error:
        log.warning("The batch %s is left out: %s", group_id, error)
        return None
