"""Buckets and objects as the API shows them, and what users may set of them."""

from __future__ import annotations

import base64
import copy
import re
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

from kinetic_payload.testing.gcs.answers import invalid
from kinetic_payload.testing.gcs.calls import whole
from kinetic_payload.testing.gcs.state import SOFT_DELETE_SECONDS, Bucket, StoredObject

OBJECT_FIELDS: Final[dict[str, type]] = {
    "cacheControl": str, "contentDisposition": str, "contentEncoding": str, "contentLanguage": str,
    "contentType": str, "contexts": dict, "customTime": str, "eventBasedHold": bool, "metadata": dict,
    "retention": dict, "storageClass": str, "temporaryHold": bool,
}  # fmt: skip
"""What users may set of an object, and what it is."""

BUCKET_FIELDS: Final[dict[str, type]] = {
    "autoclass": dict, "cors": list, "defaultEventBasedHold": bool, "encryption": dict,
    "hierarchicalNamespace": dict, "iamConfiguration": dict, "labels": dict, "lifecycle": dict, "location": str,
    "logging": dict, "retentionPolicy": dict, "rpo": str, "softDeletePolicy": dict, "storageClass": str,
    "versioning": dict, "website": dict,
}  # fmt: skip
"""What users may set of a bucket, and what it is."""

KNOWN_FIELDS: Final = {
    *OBJECT_FIELDS, *BUCKET_FIELDS,
    "acl", "bucket", "componentCount", "crc32c", "customerEncryption", "defaultObjectAcl", "done", "etag",
    "generation", "hardDeleteTime", "id", "isUnreachable", "items", "kind", "kmsKeyName", "locationType", "md5Hash",
    "mediaLink", "metageneration", "name", "nextPageToken", "objectSize", "owner", "permissions", "prefixes",
    "projectNumber", "resource", "restoreToken", "retentionExpirationTime", "rewriteToken", "selfLink", "size",
    "softDeleteTime", "timeCreated", "timeDeleted", "timeFinalized", "timeStorageClassUpdated",
    "totalBytesRewritten", "updated",
}  # fmt: skip
"""What `fields` may select."""
MOST_KEY: Final = 1 << 10
MOST_VALUE: Final = 4 << 10
MOST_METADATA: Final = 8 << 10
"""Bytes of keys, of values, and of all of them, in `metadata`.

https://docs.cloud.google.com/storage/docs/reference/rpc/google.storage.v1
"""
_FIXED: Final = ("location", "hierarchicalNamespace")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)")
_CLASSES: Final = (
    "STANDARD", "NEARLINE", "COLDLINE", "ARCHIVE", "MULTI_REGIONAL", "REGIONAL",
    "DURABLE_REDUCED_AVAILABILITY",
)  # fmt: skip


def timestamp(seconds: float) -> str:
    """Return a time as the API writes it."""
    text = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def etag_of(generation: int, metageneration: int) -> str:
    """Return what identifies one state of an object or bucket."""
    return base64.b64encode(f"{generation}/{metageneration}".encode()).decode()


def object_resource(stored: StoredObject, base: str) -> dict[str, Any]:
    """Return an object as the API shows it."""
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
        "etag": etag_of(*stored.version),
        "timeCreated": created,
        "updated": timestamp(stored.updated),
        "timeStorageClassUpdated": created,
        "timeFinalized": created,
        **stored.fields,
    }
    if stored.content.md5 is not None:
        shown["md5Hash"] = stored.content.md5
    if stored.components is not None:
        shown["componentCount"] = stored.components
    return shown


def bucket_resource(bucket: Bucket, base: str) -> dict[str, Any]:
    """Return a bucket as the API shows it."""
    return {
        "kind": "storage#bucket",
        "id": bucket.name,
        "selfLink": f"{base}/storage/v1/b/{bucket.name}",
        "name": bucket.name,
        "projectNumber": str(100_000_000_000 + sum(map(ord, bucket.project))),
        "generation": str(bucket.generation),
        "metageneration": str(bucket.metageneration),
        "etag": etag_of(bucket.generation, bucket.metageneration),
        "timeCreated": timestamp(bucket.created),
        "updated": timestamp(bucket.updated),
        "locationType": "multi-region" if len(bucket.fields["location"]) < 5 else "region",
        **bucket.fields,
    }


def new_bucket_fields(given: dict[str, Any], now: float) -> dict[str, Any]:
    """Return the fields of a bucket that is asked for as *given*."""
    fields: dict[str, Any] = {
        "location": "US",
        "storageClass": "STANDARD",
        "rpo": "DEFAULT",
        "iamConfiguration": {
            "bucketPolicyOnly": {"enabled": False},
            "uniformBucketLevelAccess": {"enabled": False},
            "publicAccessPrevention": "inherited",
        },
        "softDeletePolicy": {
            "retentionDurationSeconds": str(SOFT_DELETE_SECONDS),
            "effectiveTime": timestamp(now),
        },
    }
    _merge(fields, {k: v for k, v in _own(given, BUCKET_FIELDS).items() if v is not None})
    fields["location"] = fields["location"].upper()
    return _checked_bucket(fields)


def merged_bucket_fields(fields: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return the fields after a patch: None removes, mappings are merged key by key."""
    changed = copy.deepcopy(fields)
    _merge(changed, {k: v for k, v in _own(given, BUCKET_FIELDS).items() if k not in _FIXED})
    return _checked_bucket(changed)


def _checked_bucket(fields: dict[str, Any]) -> dict[str, Any]:
    policy = fields.get("softDeletePolicy", {})
    seconds = whole(policy.get("retentionDurationSeconds", 0), "retentionDurationSeconds")
    if seconds != 0 and not SOFT_DELETE_SECONDS <= seconds <= 90 * 24 * 3600:
        raise invalid(
            f"Soft delete retention duration must be 0 or between 7 and 90 days: {seconds} seconds."
        )
    if policy:
        # Numbers of 64 bits travel as text.
        policy["retentionDurationSeconds"] = str(seconds)
    if "lifecycle" in fields:
        rules = fields["lifecycle"].get("rule")
        if not all(map(_is_rule, rules if isinstance(rules, list) else [rules])):
            raise invalid("A lifecycle rule needs an action and at least one condition.")
        if not rules:
            del fields["lifecycle"]
    _check_class(fields)
    return fields


def object_fields(given: dict[str, Any]) -> dict[str, Any]:
    """Return what of *given* is an object's to have, checked."""
    fields = {k: v for k, v in _own(given, OBJECT_FIELDS).items() if v is not None}
    if "customTime" in fields:
        _time(fields["customTime"])
    metadata = fields.get("metadata", {})
    fields["metadata"] = {k: str(v) for k, v in metadata.items() if v is not None}
    if not fields["metadata"]:
        del fields["metadata"]
    else:
        _check_metadata(fields["metadata"])
    _check_class(fields)
    return fields


def merged_object_fields(fields: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return the fields after a patch: None removes, `metadata` is merged key by key."""
    changed = copy.deepcopy(fields)
    _merge(changed, _own(given, OBJECT_FIELDS))
    return _keeping_custom_time(fields, object_fields(changed))


def replaced_object_fields(fields: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return the fields after an update, which leaves nothing that it does not name."""
    changed = object_fields(given)
    if "storageClass" in fields:
        changed.setdefault("storageClass", fields["storageClass"])
    return _keeping_custom_time(fields, changed)


def _keeping_custom_time(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    if "customTime" not in before:
        return after
    if "customTime" not in after or _time(after["customTime"]) < _time(before["customTime"]):
        raise invalid("Custom time cannot be removed or set to an earlier time.")
    return after


def _own(given: dict[str, Any], kinds: dict[str, type]) -> dict[str, Any]:
    """Return what of *given* can be set, checked for what it is."""
    for key, value in given.items():
        if value is not None and not isinstance(value, kinds.get(key, object)):
            raise invalid(f"Invalid value for: {key}")
    return {key: value for key, value in given.items() if key in kinds}


def _check_metadata(metadata: dict[str, str]) -> None:
    keys, values = (
        [len(text.encode()) for text in part] for part in zip(*metadata.items(), strict=True)
    )
    if max(keys) > MOST_KEY or max(values) > MOST_VALUE or sum(keys) + sum(values) > MOST_METADATA:
        raise invalid("The custom metadata of the object is too large.")


def _is_rule(rule: Any) -> bool:
    if not isinstance(rule, dict):
        return rule is None
    action, condition = rule.get("action"), rule.get("condition")
    return isinstance(action, dict) and "type" in action and bool(condition)


def _time(text: Any) -> datetime:
    try:
        if not _TIME.fullmatch(str(text)):
            raise ValueError
        # Python knows microseconds, the API nanoseconds.
        return datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", text.upper()))
    except ValueError:
        raise invalid(f"Invalid value for customTime: '{text}'") from None


def _merge(onto: dict[str, Any], given: dict[str, Any]) -> None:
    for key, value in given.items():
        if value is None:
            onto.pop(key, None)
        elif isinstance(value, dict) and isinstance(onto.get(key), dict):
            _merge(onto[key], value)
        else:
            onto[key] = copy.deepcopy(value)


def _check_class(fields: dict[str, Any]) -> None:
    if fields.get("storageClass", "STANDARD") not in _CLASSES:
        raise invalid(f"Invalid storage class: {fields['storageClass']}")
