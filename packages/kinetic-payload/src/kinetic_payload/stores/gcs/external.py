"""External buckets: read-only buckets that hold a user's `Data`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kinetic_payload.stores.gcs.bucket import Bucket, json_object
from kinetic_payload.stores.gcs.download import download
from kinetic_payload.stores.gcs.service import Service

if TYPE_CHECKING:
    from kinetic_payload.progress import Advance
    from kinetic_payload.stores.gcs.retry import RetryPolicy


class ExternalBucket(Bucket):
    """A bucket that Kinetic only reads. A public one can be read without credentials."""

    def __init__(
        self, name: str, *, service: Service | None = None, retry: RetryPolicy | None = None
    ) -> None:
        super().__init__(
            name, service=service or Service.from_environment(allow_anonymous=True), retry=retry
        )

    def places(self) -> tuple[str, ...]:
        """Return the location of the bucket in lower case: a region, a multi-region or several regions.

        Raises:
            StorePermissionError: `storage.buckets.get` is missing.
        """
        url = self.connection.url(self.name, fields="location,customPlacementConfig")
        found = self.run(
            "read the location of the bucket", lambda _: json_object(self.send("GET", url))
        )
        custom = found.get("customPlacementConfig")
        several = custom.get("dataLocations") if isinstance(custom, dict) else None
        named = several if isinstance(several, list) else [found.get("location")]
        return tuple(place.lower() for place in named if isinstance(place, str))

    def download(self, name: str, path: Path, *, progress: Advance | None = None) -> None:
        """Write one generation of the object into the file *path*, complete or not at all."""
        download(self, name, path, progress=progress)
