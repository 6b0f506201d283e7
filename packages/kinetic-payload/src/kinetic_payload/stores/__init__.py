"""Stores of objects: open one by its location, or a bucket of somebody else by its name."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from kinetic_payload.errors import StoreError
from kinetic_payload.stores.store import Location, Store

if TYPE_CHECKING:
    from kinetic_payload.stores.gcs import ExternalBucket


def open_store(
    location: Location,
    *,
    uploads: Path | None = None,
    on_outage: Callable[[str], object] = lambda _: None,
) -> Store:
    """Open the store at *location*, making a folder that is not there yet.

    No request is sent before the first operation on an object. Upload sessions of a bucket are kept in
    the folder *uploads*, if that is given. *on_outage* is called with a sentence when the service has been
    unavailable for some seconds and requests are retried.

    Raises:
        StoreError: This version, or this system, has no store of that kind.
    """
    if location.kind == "gs":
        _need_client(str(location))
        from kinetic_payload.stores.gcs import GcsStore

        return GcsStore(location.path, uploads=uploads, on_outage=on_outage)
    if location.kind != "folder":
        raise StoreError(
            f"{location.kind}:{location.path} is not a location that another process can open.",
            hint="Use gs://BUCKET or a folder.",
        )
    if sys.platform == "win32":
        raise StoreError(
            "A folder store needs Linux or macOS.", hint="On Windows, use Kinetic inside WSL."
        )
    from kinetic_payload.stores.folder.store import FolderStore

    return FolderStore(Path(location.path))


def open_bucket(name: str) -> ExternalBucket:
    """Open a bucket that does not belong to Kinetic, for reading. No request is sent yet.

    Raises:
        StoreError: Google's client library is not installed.
    """
    _need_client(f"gs://{name}")
    from kinetic_payload.stores.gcs import ExternalBucket

    return ExternalBucket(name)


def _need_client(what: str) -> None:
    from importlib.util import find_spec

    try:
        # What google-cloud-storage brings, and all that is used of it.
        found = all(map(find_spec, ("google.auth", "google_crc32c", "requests")))
    except ModuleNotFoundError:
        found = False
    if not found:
        raise StoreError(
            f"{what} is a bucket, and google-cloud-storage is not installed here.",
            hint="Install it: pip install google-cloud-storage",
        )
