"""Removes what jobs shared and no kept job names any more: contexts, bundles, environments.

And what is left here of jobs that were cleaned up from another machine.

Only what nobody used for 14 days goes. A submit that finds something old either uses it and makes
it young, or finds it gone and makes it again: for bundles (`keep`) and environments both sides take a
lock, for contexts (`transfer.ensure_context`) a week lies between the two ages.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from kinetic.local.liveness import is_alive
from kinetic.local.paths import Home, JobFolder
from kinetic_payload.errors import ObjectNotFoundError, PreconditionFailedError, StoreError
from kinetic_payload.layout import (
    JOB_OBJECTS_SUFFIX,
    RESERVED_PREFIXES,
    JobObjects,
    context_object,
)
from kinetic_payload.store import Store, parse_location
from kinetic_payload.stores.locks import locked

MAX_AGE: Final = 14 * 86_400.0
"""Seconds that something unused is kept."""

_EVERY: Final = 86_400.0
_LOCK: Final = ".collection.lock"


def keep(home: Home, folder: Path) -> bool:
    """Make *folder*, a bundle, young; return whether it is there."""
    os.makedirs(home.path, mode=0o700, exist_ok=True)  # noqa: PTH103
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
        if now - mark.stat().st_mtime < _EVERY:
            return False
    except FileNotFoundError:
        mark.touch(mode=0o600)  # A new home holds nothing old.
        return False
    mark.touch()
    return True


def main() -> None:
    """Collect; run in a process of its own, with the home and the store's place as arguments."""
    from kinetic_payload.stores import open_store

    home, location = sys.argv[1:3]
    with suppress(OSError):
        os.nice(10)
    collect(Home(home), open_store(parse_location(location)), time.time())


def collect(home: Home, store: Store, now: float) -> None:
    """Remove what was not used since `MAX_AGE` before *now* and belongs to no kept job.

    Of a bucket nothing: it has rules of its own for what is old, and other machines use it.
    """
    oldest = now - MAX_AGE
    _collect_staging(home, oldest)
    with suppress(StoreError):  # What cannot be asked for today may be so tomorrow.
        _collect_forgotten(home, store, oldest)
    uses = list(_uses(home))
    _collect_bundles(home, {use.get("bundle") for use in uses}, oldest)
    if store.location.kind == "folder":
        _collect_unrecorded(store, oldest)
        _collect_contexts(store, oldest)
    _collect_environments(home, {use.get("environment") for use in uses}, oldest)


def _uses(home: Home) -> Iterable[dict[str, str | None]]:
    for job in _children(home.jobs):
        with suppress(OSError, ValueError):
            yield json.loads(Path(JobFolder(str(job)).uses).read_text())


def _collect_staging(home: Home, oldest: float) -> None:
    """Remove folders of jobs whose submit died before they had a name."""
    for folder in _children(home.jobs):
        if folder.name.startswith(".") and not is_alive(JobFolder(str(folder))):
            with suppress(OSError):
                if folder.stat().st_mtime < oldest:
                    shutil.rmtree(folder)


def _collect_forgotten(home: Home, store: Store, oldest: float) -> None:
    """Remove folders of jobs that *store* does not know any more: they were cleaned up elsewhere."""
    for job in _children(home.jobs):
        folder = JobFolder(str(job))
        with suppress(OSError, ValueError):
            uses = json.loads(Path(folder.uses).read_text())
            if (
                uses.get("store") == str(store.location)
                and job.stat().st_mtime < oldest
                and not is_alive(folder)
                and store.stat(JobObjects(job.name).handle) is None
            ):
                shutil.rmtree(job)


def _collect_bundles(home: Home, kept: set[str | None], oldest: float) -> None:
    for folder in _children(home.bundles):
        if folder.name in kept or not folder.is_dir():
            continue
        gone = folder.with_name(f".{folder.name}.{os.urandom(4).hex()}")
        with locked(f"{home.path}/{_LOCK}"):
            try:
                if folder.stat().st_mtime >= oldest:
                    continue
                if not folder.name.startswith("."):
                    folder.rename(gone)
            except OSError:
                continue
        shutil.rmtree(gone if gone.exists() else folder, ignore_errors=True)


def _collect_environments(home: Home, kept: set[str | None], oldest: float) -> None:
    from kinetic.local.environments import LAST_USED, remove_environment

    for folder in _children(home.environments):
        if folder.is_dir() and folder.name not in kept:
            used = folder / LAST_USED
            with suppress(OSError):
                if (used if used.exists() else folder).stat().st_mtime < oldest:
                    remove_environment(Path(home.path), folder.name)


def _collect_contexts(store: Store, oldest: float) -> None:
    old = [info for info in store.list("contexts/") if info.updated < oldest]
    if not old:
        return
    # Looked up after the list: a job submitted meanwhile made its context young.
    kept = set(_named_contexts(store))
    for info in old:
        if info.name not in kept:
            with suppress(PreconditionFailedError):
                store.delete(info.name, if_generation=info.generation)


def _collect_unrecorded(store: Store, oldest: float) -> None:
    """Remove the payloads of jobs whose submit died before they had a record."""
    for folder in store.folders():
        name = folder.rstrip("/") + JOB_OBJECTS_SUFFIX
        if folder not in RESERVED_PREFIXES and store.stat(name) is None:
            left = list(store.list(folder))
            if all(info.updated < oldest for info in left):
                for info in left:
                    store.delete(info.name)


def _named_contexts(store: Store) -> Iterable[str]:
    for folder in store.folders():
        if folder in RESERVED_PREFIXES:
            continue
        with suppress(ObjectNotFoundError, ValueError):
            record = json.loads(store.read(folder.rstrip("/") + JOB_OBJECTS_SUFFIX))
            if record.get("context_digest"):
                yield context_object(record["context_digest"])


def _children(folder: str) -> list[Path]:
    try:
        return sorted(Path(folder).iterdir())
    except FileNotFoundError:
        return []
