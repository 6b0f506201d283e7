"""Stores, opened by their locations; external buckets, opened by their names."""

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
    on_outage: Callable[[str], object] = lambda _: None,
) -> Store:
    """Open the store at *location*; create a folder that does not exist.

    The first request to a bucket is made when the first object is used. *on_outage* is called with a sentence
    when the service is unavailable for some seconds.

    Raises:
        StoreError: This version or system does not support that kind of store.
    """
    if location.kind == "gs":
        _need_client(str(location))
        from kinetic_payload.stores.gcs import GcsStore

        return GcsStore(location.path, on_outage=on_outage)
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
    """Open an external bucket for reading, without a request.

    Raises:
        StoreError: google-cloud-storage is not installed.
    """
    _need_client(f"gs://{name}")
    from kinetic_payload.stores.gcs import ExternalBucket

    return ExternalBucket(name)


def _need_client(what: str) -> None:
    from importlib.util import find_spec

    try:
        # Kinetic uses only these dependencies of google-cloud-storage.
        found = all(map(find_spec, ("google.auth", "google_crc32c", "requests")))
    except ModuleNotFoundError:
        found = False
    if not found:
        raise StoreError(
            f"{what} is a bucket, and google-cloud-storage is not installed here.",
            hint="Install it: pip install google-cloud-storage",
        )
