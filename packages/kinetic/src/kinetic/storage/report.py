"""What is stored, how much, since when, and when it is deleted: `kinetic storage`. Nothing is changed.

```python
for row in stored(Settings.from_environment(backend="local")):
    print(row.what, row.size, row.days)
```
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kinetic.backends.gke.images.builders import builds_store
from kinetic.backends.registry import entry_of
from kinetic.errors import BucketNotFoundError, ProvisioningError, StorePermissionError
from kinetic.jobs.discover import of_backends, open_existing
from kinetic.jobs.services import LOOK, jobs_location, local_store_location, look_limit
from kinetic.retention.ages import FOLDER_EXPIRY, UNUSED_DAYS, Expiry, days_of
from kinetic_images.caches import CHOICES_AGE, FILES_AGE
from kinetic_payload.layout import kind_of
from kinetic_payload.stores.store import Location, parse_location

if TYPE_CHECKING:
    from kinetic.settings.settings import Settings
    from kinetic_payload.stores.store import Store

log = logging.getLogger("kinetic")

OTHER: Final = "other"
"""What is not Kinetic's."""
_TITLES: Final = {
    "context": "contexts",
    "part": "context parts",
    "data": "data",
    "record": "job records",
    "payload": "payloads",
    "input": "batch inputs",
    "value": "values",
    "log": "logs",
    "output": "outputs",
    "build_context": "build contexts",
    "build_log": "build logs",
    "build_resolution": "build locks",
    "build": "build records",
    "scratch": "pathways scratch",
}
_FILES, _CHOICES = (int(age // 86_400) for age in (FILES_AGE, CHOICES_AGE))
_HOME: Final = (
    ("jobs/", "job folders", None),
    ("bundles/", "runners", UNUSED_DAYS),
    ("environments/", "environments", UNUSED_DAYS),
    ("cache/downloads/", "wheels", _FILES),
    ("cache/layers/", "layers", _FILES),
    ("cache/locks/", "locks", _CHOICES),
    ("cache/images/", "images", _CHOICES),
    ("cache/", "other caches", None),
    *((name, "settings", None) for name in ("key", "profiles.json", "ports/", "defaults/")),
    *((name, "settings", None) for name in (".key", ".collect", ".profiles")),
)
"""Files, folders and hidden files of a home by the beginnings of their paths, what they are, and after how many days
without use they are removed."""


@dataclass
class Stored:
    """What is stored of one kind in one place."""

    place: str
    """A bucket, with the prefix in it, or a folder."""
    what: str
    expires: bool | None = None
    """Whether it is deleted by itself; None if the rules of the bucket may not be read."""
    days: int | None = None
    """After how many days it is deleted by itself; use resets the age of what jobs share."""
    items: int = 0
    """Contexts, data, jobs and so on; each may have several objects."""
    objects: int = 0
    size: int = 0
    """In bytes."""
    oldest: float = 0.0
    """In seconds since the epoch, as `newest`."""
    newest: float = 0.0

    def add(self, size: int, updated: float, *, new_item: bool) -> None:
        """Count an object."""
        self.oldest = min(self.oldest, updated) if self.objects else updated
        self.newest = max(self.newest, updated)
        self.items += new_item
        self.objects += 1
        self.size += size


def stored(settings: Settings) -> list[Stored]:
    """Return what is stored where `list_jobs` looks: on this machine, in the buckets of the cluster, or both.

    Each place is listed once. The memory that this needs does not depend on the number of objects.

    Raises:
        KineticError: A place cannot be read; `of_backends` leaves out a cluster that was not asked for.
    """
    found = [row for rows in of_backends(settings, _stored_by) for row in rows]
    return list({(row.place, row.what): row for row in found}.values())


def stored_in(store: Store, expiry: Expiry | None) -> list[Stored]:
    """Return what *store* has, by kind, from one list of it. *expiry* are its rules, None if they are not known."""
    place, rows, last = str(store.location), dict[str, Stored](), dict[str, str]()
    within = store.location.path.partition("/")[2] if store.location.kind == "gs" else ""
    for info in store.list():
        kind, owner = kind_of(info.name) or (OTHER, info.name)
        what = _TITLES.get(kind, OTHER)
        if what not in rows:
            rows[what] = Stored(place, what)
            if what == OTHER:  # Of several names, so a bucket may have several rules for them.
                rows[what].expires = False if store.location.kind == "folder" else None
            elif expiry is not None:
                rows[what].days = days_of(f"{within}/{info.name}".lstrip("/"), expiry)
                rows[what].expires = rows[what].days is not None
        # The list is in order, so what belongs together is together; markers are no data of their own.
        is_marker = info.name.startswith("data-markers/")
        new_item = not is_marker and last.get(what) != owner
        rows[what].add(info.size, info.updated, new_item=new_item)
        last[what] = last.get(what, "") if is_marker else owner
    return _in_order(rows, _TITLES.values())


def stored_at_home(home: Path, *, stores: Iterable[Path]) -> list[Stored]:
    """Return what is in *home* (`KINETIC_HOME`), by kind, without the folders of *stores*."""
    rows, last = dict[str, Stored](), dict[str, str]()
    for path, status in files_below(home, stores):
        start, what, days = next(
            (
                known
                for known in _HOME
                if path == known[0] or (path.startswith(known[0]) and not known[0].isalpha())
            ),
            ("", OTHER, None),
        )
        row = rows.setdefault(what, Stored(str(home), what, days is not None, days))
        item = start + path[len(start) :].partition("/")[0]
        new_item = last.get(what) != item and not item.endswith(".lock")
        row.add(status.st_size, status.st_mtime, new_item=new_item)
        last[what] = item
    return _in_order(rows, dict.fromkeys(what for _, what, _ in _HOME))


def _stored_by(backend: str, settings: Settings) -> list[Stored]:
    home, location = Path(settings.home.value), jobs_location(settings, backend)
    locations = [location]
    if entry_of(backend).on_this_machine and local_store_location(home) != location:
        locations.append(local_store_location(home))
    rows: list[Stored] = []
    for each in locations:
        store = open_existing(each, look_limit())
        if store is not None:
            rows += stored_in(store, _expiry_of(each, settings))
    if entry_of(backend).on_this_machine:
        folders = [Path(each.path) for each in locations if each.kind == "folder"]
        return rows + stored_at_home(home, stores=folders)
    return rows + _stored_builds(location, settings)


def _stored_builds(jobs: Location, settings: Settings) -> list[Stored]:
    """Return what the builds bucket of the cluster has."""
    address = settings.builds_store.value
    if address is None and settings.project.value is not None:
        address = builds_store(settings.project.value, settings.cluster.value)
    if address is None or (location := parse_location(address)) == jobs:
        return []
    try:
        store = open_existing(location, look_limit())
        return [] if store is None else stored_in(store, _expiry_of(location, settings))
    except BucketNotFoundError:
        return []  # Nothing was built by Cloud Build.
    except StorePermissionError as error:
        log.warning("The builds bucket is left out: %s", error.message)
        return []


def _expiry_of(location: Location, settings: Settings) -> Expiry | None:
    """Return the rules of a store: of a bucket its own, which only some users may read, else None."""
    if location.kind != "gs":
        return FOLDER_EXPIRY
    from kinetic.settings.settings import environment

    name = location.path.partition("/")[0]
    reason = "there is no such bucket."
    try:
        from kinetic.provisioning.google.buckets import deletions_of, storage_client
        from kinetic.provisioning.google.cloud import Cloud

        cloud = Cloud(settings.project.value or "-", environment(), patience=LOOK, timeout=LOOK)
        client = storage_client(cloud)
        read = partial(client.get_bucket, name, timeout=LOOK, retry=None)
        bucket = cloud.ask(f"read the rules of gs://{name}", read)
        if bucket is not None:
            return [each for rule in bucket.lifecycle_rules for each in deletions_of(rule)]
    except ImportError:
        reason = "Google's client is missing: pip install 'kinetic[clusters]'."
    except ProvisioningError as error:
        reason = error.message
    log.warning("After how many days gs://%s deletes objects is not known: %s", name, reason)
    return None


def files_below(path: Path, skipped: Iterable[Path] = ()) -> Iterator[tuple[str, os.stat_result]]:
    """Iterate over the files in the folder *path*, without those in *skipped* folders; of a file, over itself.

    Links are not followed. Files that vanish meanwhile, or may not be read, are left out.
    """
    if not path.is_dir():
        with suppress(OSError):
            yield path.name, path.lstat()
        return
    left_out, folders, start = {str(each) for each in skipped}, [str(path)], len(str(path)) + 1
    while folders:
        with suppress(OSError), os.scandir(folders.pop()) as entries:
            found = sorted(entries, key=lambda entry: entry.name, reverse=True)
            for entry in found:
                with suppress(OSError):
                    if not entry.is_dir(follow_symlinks=False):
                        yield entry.path[start:], entry.stat(follow_symlinks=False)
                    elif entry.path not in left_out:
                        folders.append(entry.path)


def _in_order(rows: dict[str, Stored], titles: Iterable[str]) -> list[Stored]:
    order = [*titles, OTHER]
    return sorted(rows.values(), key=lambda row: order.index(row.what))
