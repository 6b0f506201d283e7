"""The API's JSON resources of buckets and objects."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

from kinetic_servers.gcs.errors import invalid
from kinetic_servers.gcs.state import Bucket, StoredObject

OBJECT_FIELDS: Final[dict[str, type]] = {"contentType": str, "metadata": dict}
"""The fields of an object that users may set, with their types."""

KNOWN_FIELDS: Final = {
    *OBJECT_FIELDS, "bucket", "iamConfiguration", "labels", "lifecycle", "softDeletePolicy", "versioning", "crc32c", "customPlacementConfig", "dataLocations", "done",
    "etag", "generation", "id", "items", "kind",
    "location", "locationType", "md5Hash", "mediaLink", "metageneration", "name", "nextPageToken", "objectSize",
    "prefixes", "projectNumber", "resource", "rewriteToken", "selfLink", "size", "storageClass", "timeCreated",
    "timeFinalized", "timeStorageClassUpdated", "totalBytesRewritten", "updated",
}  # fmt: skip
"""The fields that `fields` may select."""
MOST_KEY: Final = 1 << 10
MOST_VALUE: Final = 4 << 10
MOST_METADATA: Final = 8 << 10
"""The most bytes of a key, of a value, and of all keys and values in `metadata`.

https://docs.cloud.google.com/storage/docs/reference/rpc/google.storage.v1
"""


def timestamp(seconds: float) -> str:
    """Format a time as the API does."""
    text = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def etag_of(generation: int, metageneration: int) -> str:
    """Return the ETag of one state of an object or bucket."""
    return base64.b64encode(f"{generation}/{metageneration}".encode()).decode()


def object_resource(stored: StoredObject, base: str) -> dict[str, Any]:
    """Return the resource of an object."""
    place = f"storage/v1/b/{stored.bucket}/o/{quote(stored.name, safe='')}"
    created, generation = timestamp(stored.created), str(stored.generation)
    shown = {
        "kind": "storage#object",
        "id": f"{stored.bucket}/{stored.name}/{generation}",
        "selfLink": f"{base}/{place}",
        "mediaLink": f"{base}/download/{place}?generation={generation}&alt=media",
        "name": stored.name,
        "bucket": stored.bucket,
        "generation": generation,
        "metageneration": str(stored.metageneration),
        "storageClass": "STANDARD",
        "size": str(stored.content.size),
        "crc32c": stored.content.crc32c,
        "etag": etag_of(stored.generation, stored.metageneration),
        "timeCreated": created,
        "updated": timestamp(stored.updated),
        "timeStorageClassUpdated": created,
        "timeFinalized": created,
        **stored.fields,
    }
    if stored.content.md5 is not None:
        shown["md5Hash"] = stored.content.md5
    return shown


def bucket_resource(bucket: Bucket, base: str) -> dict[str, Any]:
    """Return the resource of a bucket."""
    kind = "region" if "-" in bucket.location else "multi-region"
    placement = {}
    if bucket.regions:
        kind = "dual-region"
        placement = {"customPlacementConfig": {"dataLocations": list(bucket.regions)}}
    return {
        "kind": "storage#bucket",
        "id": bucket.name,
        "selfLink": f"{base}/storage/v1/b/{bucket.name}",
        "name": bucket.name,
        "projectNumber": str(bucket.number),
        "generation": str(bucket.generation),
        "metageneration": str(bucket.metageneration),
        "etag": etag_of(bucket.generation, bucket.metageneration),
        "timeCreated": timestamp(bucket.created),
        "updated": timestamp(bucket.updated or bucket.created),
        "location": bucket.location,
        "locationType": kind,
        **placement,
        "storageClass": "STANDARD",
        **bucket.fields,
    }


def object_fields(given: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of an object in *given*, checked."""
    fields = {key: given[key] for key in OBJECT_FIELDS if given.get(key) is not None}
    for key, value in fields.items():
        if not isinstance(value, OBJECT_FIELDS[key]):
            raise invalid(f"Invalid value for: {key}")
    metadata = {k: str(v) for k, v in fields.pop("metadata", {}).items() if v is not None}
    if not metadata:
        return fields
    keys, values = (
        [len(text.encode()) for text in part] for part in zip(*metadata.items(), strict=True)
    )
    if max(keys) > MOST_KEY or max(values) > MOST_VALUE or sum(keys) + sum(values) > MOST_METADATA:
        raise invalid("The custom metadata of the object is too large.")
    return {**fields, "metadata": metadata}


def merged_object_fields(fields: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return the fields after a patch: None removes, `metadata` is merged key by key."""
    changed = {**fields, **given}
    if isinstance(given.get("metadata"), dict):
        changed["metadata"] = {**fields.get("metadata", {}), **given["metadata"]}
    return object_fields(changed)
