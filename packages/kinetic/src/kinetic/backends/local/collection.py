"""Removes what jobs shared and no kept job names any more: contexts, bundles, environments.

And what is left here of jobs that were cleaned up from another machine, and of submits that were killed.

A store, or `KINETIC_HOME`, may be a folder that also holds other things: only what has exactly the
names that we give is looked at. What a killed submit left goes after a day: its payload, in a bucket
too, and its staging folder. A submit that takes longer renews its payload once its record is there: who
listed it before that cannot delete it any more, and who lists it later sees the record.

Of the rest only what nobody used for 14 days goes. A submit that finds something old either uses it and makes
it young, or finds it gone and makes it again: for bundles (`keep`) and environments both sides take a
lock, for contexts (`transfer.ensure_context`) a week lies between the two ages.
"""

from __future__ import annotations

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

from kinetic.backends.local.bucket_access import bucket_environment
from kinetic.backends.local.detached import base_environment, start_detached
from kinetic.backends.local.liveness import is_alive
from kinetic.backends.local.paths import Home, JobFolder
from kinetic.backends.local.removal import remove_tree
from kinetic_payload.errors import (
    ObjectNotFoundError,
    PreconditionFailedError,
    RecordError,
    StoreError,
    StoreUnavailableError,
)
from kinetic_payload.files.locks import locked
from kinetic_payload.files.private import make_folder, write_private
from kinetic_payload.layout import (
    JobObjects,
    context_object,
    is_context,
    is_digest,
    is_job_id,
    is_job_object,
)
from kinetic_payload.limits import read_record
from kinetic_payload.records.encode import fields_of
from kinetic_payload.records.pending_uploads import PendingUploads
from kinetic_payload.stores.store import Store, parse_location
from kinetic_payload.threads import parallel_map

log = logging.getLogger("kinetic")

MAX_AGE: Final = 14 * 86_400.0
"""Seconds that something unused is kept."""
LEFT_AGE: Final = 86_400.0
"""Seconds after which what a submit began, and did not record, is what a killed one left."""

_EVERY: Final = 86_400.0
_LEFT_EVERY: Final = 3_600.0
_LOCK: Final = ".collection.lock"


def keep(home: Home, folder: Path) -> bool:
    """Make *folder*, a bundle, young; return whether it is there."""
    make_folder(home.path)
    with locked(f"{home.path}/{_LOCK}"):
        try:
            os.utime(folder)
        except FileNotFoundError:
            return False
        return True


def is_due(home: Home, now: float) -> bool:
    """Return whether a collection is to be started now; at most one a day is."""
    mark = Path(home.path, ".collected")
    try:
        # A mark from days ahead was made by a clock that was wrong, and would hold until then.
        if abs(now - mark.stat().st_mtime) < _EVERY:
            return False
    except FileNotFoundError:
        write_private(mark, b"")  # A new home holds nothing old.
        return False
    os.utime(mark)
    return True


def left_long_ago(job_ids: Iterable[str], now: float) -> list[str]:
    """Return those of *job_ids*, which have no record, whose submit began a day before *now* or earlier."""
    return [one for one in job_ids if is_job_id(one) and now - _submitted_at(one) > LEFT_AGE]


def _submitted_at(job_id: str) -> float:
    """Return when the job's submit began, by the clock of its machine."""
    found = re.search(r"-(\d{8}-\d{6})-", job_id)
    try:
        return datetime.strptime(f"{found and found[1]}+0000", "%Y%m%d-%H%M%S%z").timestamp()
    except ValueError:
        return inf


def is_left_due(home: Home, now: float) -> bool:
    """Return whether what killed submits left may be collected now by who lists jobs: once an hour."""
    mark = Path(home.path, ".collected-left")
    with suppress(FileNotFoundError):
        if abs(now - mark.stat().st_mtime) < _LEFT_EVERY:
            return False
    with suppress(FileNotFoundError):  # Who only lists jobs of a bucket has no home, and gets none.
        write_private(mark, b"")
    return True


def main() -> None:
    """Collect; run in a process of its own.

    Its arguments: the home, the store's place, and, if only the leftovers of some jobs are to go, their
    ids, with commas between.
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
    """Remove what was not used since `MAX_AGE` before *now* and belongs to no kept job.

    Of a bucket only what killed submits left: it has rules of its own for what is old, and other
    machines use it. *store_now* is the time by the store's clock, where that is another one. What
    cannot be looked at or removed today may be so tomorrow, and keeps nothing else from being so.
    """
    oldest = now - MAX_AGE
    with _each_by_itself():
        _collect_staging(home, now - LEFT_AGE)
    with _each_by_itself():
        job_ids = [folder.rstrip("/") for folder in store.folders()]
        collect_unrecorded(store, job_ids, now if store_now is None else store_now)
    with _each_by_itself():
        _collect_forgotten(home, store, oldest)
    uses = list(_uses(home))
    with _each_by_itself():
        _collect_bundles(home, {use.get("bundle") for use in uses}, oldest)
    if store.location.kind == "folder":
        with _each_by_itself():
            _collect_contexts(store, oldest)
    with _each_by_itself():
        _collect_environments(home, {use.get("environment") for use in uses}, oldest)


def _each_by_itself() -> AbstractContextManager[None]:
    return suppress(OSError, StoreError)


def _uses(home: Home) -> Iterable[dict[str, str | None]]:
    for job in _children(home.jobs):
        with suppress(OSError, ValueError):
            uses = json.loads(Path(JobFolder(str(job)).uses).read_text())
            if isinstance(uses, dict):
                yield uses


def _collect_staging(home: Home, oldest: float) -> None:
    """Remove folders of jobs whose submit died before they had a name, or whose removal did."""
    for folder in _children(home.jobs):
        if _is_aside(folder.name, is_job_id) and not is_alive(JobFolder(str(folder))):
            with suppress(OSError):
                if folder.stat().st_mtime < oldest:
                    remove_tree(str(folder))


def _is_aside(name: str, is_name: Callable[[str], bool]) -> bool:
    """Return whether *name* is that of a folder that is being made or removed: `.{name}.{8 hex}`."""
    aside = re.fullmatch(r"\.(.+)\.[0-9a-f]{8}", name)
    return aside is not None and is_name(aside[1])


def _collect_forgotten(home: Home, store: Store, oldest: float) -> None:
    """Remove folders of jobs that *store* does not know any more: they were cleaned up elsewhere."""
    for job in _children(home.jobs):
        folder = JobFolder(str(job))
        if not is_job_id(job.name):
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


def _collect_bundles(home: Home, kept: set[str | None], oldest: float) -> None:
    for folder in _children(home.bundles):
        aside = _is_aside(folder.name, is_digest)
        if folder.name in kept or not (aside or is_digest(folder.name)) or not folder.is_dir():
            continue
        gone = folder
        with locked(f"{home.path}/{_LOCK}"):
            try:
                if folder.stat().st_mtime >= oldest:
                    continue
                if not aside:
                    gone = folder.with_name(f".{folder.name}.{os.urandom(4).hex()}")
                    folder.rename(gone)
            except OSError:
                continue
        remove_tree(str(gone))


def _collect_environments(home: Home, kept: set[str | None], oldest: float) -> None:
    from kinetic.backends.local.environments import FAILED, remove_environment

    for path in _children(home.environments):
        with suppress(OSError):
            if is_digest(path.name) and path.name not in kept and path.is_dir():
                remove_environment(Path(home.path), path.name, unused_since=oldest)
            elif path.suffix == FAILED and is_digest(path.stem) and path.stat().st_mtime < oldest:
                path.unlink()


def _collect_contexts(store: Store, oldest: float) -> None:
    old = [one for one in store.list("contexts/") if is_context(one.name) and one.updated < oldest]
    if not old:
        return
    # Looked up after the list: a job submitted meanwhile made its context young.
    kept = set(_named_contexts(store))
    for info in old:
        if info.name not in kept:
            with suppress(PreconditionFailedError):
                store.delete(info.name, if_generation=info.generation)


def collect_unrecorded(store: Store, job_ids: Iterable[str], now: float) -> None:
    """Remove what lies in *store* of those of *job_ids* whose submit died before they had a record.

    *now* is by the store's clock. A folder that holds anything younger than a day, or anything else
    besides, is not touched.
    """

    def collect_one(job_id: str) -> None:
        try:
            collect_folder(JobObjects(job_id))
        except StoreUnavailableError:
            raise  # The others would wait as long for nothing.
        except StoreError:
            return

    def collect_folder(names: JobObjects) -> None:
        if store.stat(names.handle) is not None:
            return
        # The list decides, not the look before: a record may have come in between.
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

    parallel_map(collect_one, filter(is_job_id, job_ids), threads=store.concurrency)


def _named_contexts(store: Store) -> Iterable[str]:
    for folder in store.folders():
        job_id = folder.rstrip("/")
        if not is_job_id(job_id):
            continue
        with suppress(ObjectNotFoundError, RecordError):
            digest = fields_of(read_record(store, JobObjects(job_id).handle)).get("context_digest")
            if isinstance(digest, str):
                yield context_object(digest)


def _children(folder: str) -> list[Path]:
    try:
        return sorted(Path(folder).iterdir())
    except FileNotFoundError:
        return []


_COLLECT: Final = "import sys; sys.path += sys.argv[4:]; from kinetic.backends.local.collection import main; main()"


def start_collection(
    home: Home, store: Store, environment: Mapping[str, str], *, left: Sequence[str] = ()
) -> None:
    """Start a process of its own, with *environment*, that removes what is old and unused.

    With *left*, only what killed submits of these jobs left in the store.
    """
    arguments = [home.path, str(store.location), ",".join(left)]
    command = [sys.executable, "-I", "-c", _COLLECT, *arguments, *sys.path]
    start_detached(command, environment=environment)


def collect_left(
    home: Home, store: Store, recorded: Set[str], environment: Mapping[str, str]
) -> None:
    """Start, at most once an hour, a process that removes what killed submits left in *store*.

    The jobs that are *recorded* are no such leftovers. *environment* is this process's.
    """
    now = time.time()
    try:
        if not is_left_due(home, now):
            return
        folders = (folder.removesuffix("/") for folder in store.folders())
        left = left_long_ago((job for job in folders if job not in recorded), now)
        if left:
            handed_on = base_environment(environment) | bucket_environment(environment)
            start_collection(home, store, handed_on, left=left[:_LEFT_AT_ONCE])
    except (OSError, StoreError) as error:
        log.info("What killed submits left could not be collected: %s", error)


_LEFT_AT_ONCE: Final = 1000
"""Ids that fit on a command line."""
