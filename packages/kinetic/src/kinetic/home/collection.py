"""Collection of garbage: shared files that no kept job uses, and remains of jobs and killed submits.

Shared files are contexts, bundles, environments and the caches of images. Remains are folders of jobs that were cleaned up from
another machine, and payloads and staging folders of killed submits.

A store, or `KINETIC_HOME`, may be a folder that also holds other files: only names that Kinetic gives are
touched. The remains of a killed submit are removed after a day, also from a bucket. A submit that takes
longer renews its payload once its record is written: a collection that listed the payload before cannot
delete it any more, and one that lists it later sees the record.

All other garbage is removed after 14 days without use. A submit that finds an old file either uses it and
resets its age, or finds it removed and makes it again. For bundles (`keep`) and environments, the submit and
the collection take a lock. Contexts need no lock: a submit (`ensure_context`) resets the age of a context that
is older than a week, so each context that it uses is kept for another week.

From a folder store, data, logs and payloads are removed at the ages of a bucket's rules (`kinetic.retention.ages`),
unless a job that has not ended needs them.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import AbstractContextManager, suppress
from datetime import datetime
from math import inf
from pathlib import Path
from typing import Final

from kinetic.home.detached import base_environment, bucket_environment, start_detached
from kinetic.home.liveness import is_alive
from kinetic.home.paths import Home, JobFolder
from kinetic.home.removal import remove_tree
from kinetic.retention.ages import DAY, EXPIRY, LEFT_AGE, UNUSED_DAYS, days_of
from kinetic.retention.needs import read_needs
from kinetic.retention.removal import remove, units_of, unused_parts
from kinetic_payload.errors import PreconditionFailedError, StoreError, StoreUnavailableError
from kinetic_payload.files.due import is_due as is_mark_due
from kinetic_payload.files.locks import locked
from kinetic_payload.files.private import make_folder, write_private
from kinetic_payload.layout import (
    GROUPS,
    JobObjects,
    data_prefix,
    is_digest,
    is_job_id,
    is_job_object,
    is_run_id,
)
from kinetic_payload.records.pending_uploads import PendingUploads
from kinetic_payload.stores.store import Store, parse_location
from kinetic_payload.threads import parallel_map

log = logging.getLogger("kinetic")

MAX_AGE: Final = UNUSED_DAYS * DAY
"""Seconds for which unused files are kept."""
Spare = Callable[[Path], bool]
"""Called with a file or folder that is about to be removed; it stays if the result is true."""

_EVERY: Final = DAY
_LEFT_EVERY: Final = 3_600.0
_LOCK: Final = ".collection.lock"


def keep(home: Home, folder: Path) -> bool:
    """Reset the age of *folder*, a bundle; return whether it exists."""
    make_folder(home.path)
    with locked(f"{home.path}/{_LOCK}"):
        try:
            os.utime(folder)
        except FileNotFoundError:
            return False
        return True


def is_due(home: Home, now: float) -> bool:
    """Return whether to start a collection now, at most once a day."""
    # A new home has no old files.
    return is_mark_due(Path(home.path, ".collected"), now, every=_EVERY)


def left_long_ago(job_ids: Iterable[str], now: float) -> list[str]:
    """Return those of *job_ids*, which have no record, whose submit began more than a day before *now*."""
    return [
        job_id for job_id in job_ids if is_job_id(job_id) and now - _submitted_at(job_id) > LEFT_AGE
    ]


def _submitted_at(job_id: str) -> float:
    """Return when the job's submit began, by the clock of its machine."""
    found = re.search(r"-(\d{8}-\d{6})-", job_id)
    try:
        return datetime.strptime(f"{found and found[1]}+0000", "%Y%m%d-%H%M%S%z").timestamp()
    except ValueError:
        return inf


def is_left_due(home: Home, store: Store, now: float) -> bool:
    """Return whether to start a collection of killed submits in *store* now, at most once an hour."""
    # Each store has its own mark: a list of all jobs visits the local store before the cluster's.
    place = hashlib.sha256(os.fsencode(str(store.location))).hexdigest()[:8]
    mark = Path(home.path, f".collected-left-{place}")
    with suppress(FileNotFoundError):
        if abs(now - mark.stat().st_mtime) < _LEFT_EVERY:
            return False
    with suppress(FileNotFoundError):  # A machine that only lists jobs of a bucket has no home.
        write_private(mark, b"")
    return True


def main() -> None:
    """Collect garbage; the entry point of a separate process.

    Arguments: the home, the store's location, and the ids of jobs, separated by commas, if only their
    remains are to be removed.
    """
    from kinetic_payload.stores import open_store

    home, location, job_ids = sys.argv[1:4]
    with suppress(OSError):
        os.nice(10)
    store = open_store(parse_location(location))
    if job_ids:
        collect_unrecorded(store, job_ids.split(","), store.now())
    else:
        collect(Home(home), store, time.time(), store_now=store.now())


def collect(home: Home, store: Store, now: float, *, store_now: float | None = None) -> None:
    """Remove files that no kept job uses and that were not used for `MAX_AGE` before *now*.

    From a bucket, remove only remains of killed submits: it has lifecycle rules of its own, and other
    machines use it. *store_now* is the time by the store's clock, by default *now*. A failure is ignored, and
    does not stop the other steps: the next collection tries again.
    """
    oldest = now - MAX_AGE
    with _ignored_failures():
        _collect_staging(home, now - LEFT_AGE)
    with _ignored_failures():
        folders = ((prefix, name) for prefix in ("", GROUPS) for name in store.folders(prefix))
        job_ids = [name[len(prefix) :].rstrip("/") for prefix, name in folders]
        collect_unrecorded(store, job_ids, now if store_now is None else store_now)
    with _ignored_failures():
        _collect_forgotten(home, store, oldest)
    uses = list(_uses(home))
    with _ignored_failures():
        _collect_bundles(home, {use.get("bundle") for use in uses}, oldest)
    if store.location.kind == "folder":
        with _ignored_failures():
            _collect_objects(store, now)
    with _ignored_failures():
        from kinetic_images.caches import collect as collect_files

        collect_files(Path(home.path), now)
    with _ignored_failures():
        _collect_environments(home, {use.get("environment") for use in uses}, oldest)


def collect_caches(home: Home, now: float, age: float, spare: Spare = lambda _: False) -> None:
    """Remove bundles, environments and caches that were not used for *age* seconds before *now*.

    What a kept job of this machine uses stays, and so do wheels that were used within a day.
    """
    from kinetic_images.caches import collect as collect_files

    uses = list(_uses(home))
    _collect_bundles(home, {use.get("bundle") for use in uses}, now - age, spare)
    collect_files(Path(home.path), now, age=age, downloads_size=sys.maxsize, spare=spare)
    _collect_environments(home, {use.get("environment") for use in uses}, now - age, spare)


def _ignored_failures() -> AbstractContextManager[None]:
    return suppress(OSError, StoreError)


def _uses(home: Home) -> Iterable[dict[str, str | None]]:
    for job in _children(home.jobs):
        with suppress(OSError, ValueError):
            uses = json.loads(Path(JobFolder(str(job)).uses).read_text())
            if isinstance(uses, dict):
                yield uses


def _collect_staging(home: Home, oldest: float) -> None:
    """Remove folders of jobs whose submit or removal was killed before it was complete."""
    for folder in _children(home.jobs):
        if _is_aside(folder.name, is_run_id) and not is_alive(JobFolder(str(folder))):
            with suppress(OSError):
                if folder.stat().st_mtime < oldest:
                    remove_tree(str(folder))


def _is_aside(name: str, is_name: Callable[[str], bool]) -> bool:
    """Return whether *name* is of a folder that is being made or removed: `.{name}.{8 hex}`."""
    aside = re.fullmatch(r"\.(.+)\.[0-9a-f]{8}", name)
    return aside is not None and is_name(aside[1])


def _collect_forgotten(home: Home, store: Store, oldest: float) -> None:
    """Remove folders of jobs that are no longer in *store*: another machine cleaned them up."""
    for job in _children(home.jobs):
        folder = JobFolder(str(job))
        if not is_run_id(job.name):
            continue
        with suppress(OSError, ValueError):
            uses = json.loads(Path(folder.uses).read_text())
            if (
                isinstance(uses, dict)
                and uses.get("store") == str(store.location)
                and max(job.stat().st_mtime, PendingUploads(folder.pending_uploads).since or 0.0)
                < oldest
                and not is_alive(folder)
                and store.stat(JobObjects(job.name).handle) is None
            ):
                remove_tree(str(job))


def _collect_bundles(
    home: Home, kept: set[str | None], oldest: float, spare: Spare = lambda _: False
) -> None:
    for folder in _children(home.bundles):
        aside = _is_aside(folder.name, is_digest)
        if folder.name in kept or not (aside or is_digest(folder.name)) or not folder.is_dir():
            continue
        gone = folder
        with locked(f"{home.path}/{_LOCK}"):
            try:
                if folder.stat().st_mtime >= oldest or spare(folder):
                    continue
                if not aside:
                    gone = folder.with_name(f".{folder.name}.{os.urandom(4).hex()}")
                    folder.rename(gone)
            except OSError:
                continue
        remove_tree(str(gone))


def _collect_environments(
    home: Home, kept: set[str | None], oldest: float, spare: Spare = lambda _: False
) -> None:
    from kinetic.home.environments import last_used, remove_environment

    for path in _children(home.environments):
        with suppress(OSError):
            if not is_digest(path.name) or path.name in kept or not path.is_dir():
                continue
            if last_used(path) < oldest and not spare(path):
                remove_environment(Path(home.path), path.name, unused_since=oldest)


def _collect_objects(store: Store, now: float) -> None:
    """Remove what is too old from a folder store, unless a job needs it."""
    contexts, data, logs = (units_of(store, kind) for kind in ("context", "data", "log"))
    # Read after the lists: a job that was submitted meanwhile has reset the age of what it uses.
    needs = read_needs(store, named=True)
    for unit in contexts:
        named = unit.owner in needs.named
        oldest = now - (_age_of(unit.last.name) if named else MAX_AGE)
        if unit.newest < oldest and unit.owner not in needs.contexts:
            remove(store, unit, oldest)
    for unit in unused_parts(store, now - MAX_AGE):
        remove(store, unit, now - MAX_AGE)
    for unit in (*(() if needs.unclear else data), *logs):
        kept = unit.owner in needs.data if unit.kind == "data" else needs.job(unit.owner)
        # Data and their markers go together.
        oldest = now - _age_of(data_prefix(unit.owner) if unit.kind == "data" else unit.last.name)
        if unit.newest < oldest and not kept:
            remove(store, unit, oldest)
    for job_id in needs.ended:
        found = store.stat(JobObjects(job_id).payload)
        if found is not None and found.updated < now - _age_of(found.name):
            with suppress(PreconditionFailedError):
                store.delete(found.name, if_generation=found.generation)


def _age_of(name: str) -> float:
    """Return after how many seconds an object is removed."""
    return DAY * (days_of(name, EXPIRY) or inf)


def collect_unrecorded(store: Store, job_ids: Iterable[str], now: float) -> None:
    """Remove the objects of jobs without a record: their submit was killed.

    *job_ids* are jobs in *store*, and *now* is the time by the store's clock. The folder of a job is not
    touched if one of its objects is younger than a day, or does not belong to the job.
    """

    def collect_one(job_id: str) -> None:
        try:
            collect_folder(JobObjects(job_id))
        except StoreUnavailableError:
            raise  # The other jobs would fail too, after as long a wait.
        except StoreError:
            return

    def collect_folder(names: JobObjects) -> None:
        if store.stat(names.handle) is not None:
            return
        # Decide by the list: a record may have been written since it was looked for.
        left = list(store.list(names.prefix))
        if all(
            is_job_object(info.name, names.job_id)
            and info.name != names.handle
            and now - info.updated > LEFT_AGE
            for info in left
        ):
            for info in left:
                with suppress(PreconditionFailedError):
                    store.delete(info.name, if_generation=info.generation)

    parallel_map(collect_one, filter(is_run_id, job_ids), threads=store.concurrency)


def _children(folder: str) -> list[Path]:
    try:
        return sorted(Path(folder).iterdir())
    except FileNotFoundError:
        return []


_COLLECT: Final = (
    "import sys; sys.path += sys.argv[4:]; from kinetic.home.collection import main; main()"
)


def start_collection(
    home: Home, store: Store, environment: Mapping[str, str], *, left: Sequence[str] = ()
) -> None:
    """Start a separate process, with *environment*, that collects garbage.

    With *left*, it removes only the remains of killed submits of these jobs.
    """
    arguments = [home.path, str(store.location), ",".join(left)]
    command = [sys.executable, "-I", "-c", _COLLECT, *arguments, *sys.path]
    start_detached(command, environment=environment)


def collect_left(
    home: Home, store: Store, recorded: Set[str], environment: Mapping[str, str]
) -> None:
    """Start, at most once an hour for each store, a process that removes remains of killed submits from *store*.

    Jobs that are *recorded* are not touched. *environment* is the environment of this process.
    """
    now = time.time()
    try:
        if not is_left_due(home, store, now):
            return
        folders = (folder.removesuffix("/") for folder in store.folders())
        left = left_long_ago((job for job in folders if job not in recorded), now)
        if left:
            handed_on = base_environment(environment) | bucket_environment(environment)
            start_collection(home, store, handed_on, left=left[:_LEFT_AT_ONCE])
    except (OSError, StoreError) as error:
        log.info("Remains of killed submits could not be removed: %s", error)


_LEFT_AT_ONCE: Final = 1000
"""Most job ids that one process gets: they fit on its command line."""
