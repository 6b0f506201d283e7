"""The fields of a bucket that users may set, and what Google refuses in them."""

from __future__ import annotations

import re
from typing import Any, Final

from kinetic_servers.gcs.errors import invalid
from kinetic_servers.http.shapes import Shape, check_shape

_SWITCH: Final = {"enabled": bool, "lockedTime": str}
_CONDITION: Final = {
    "age": int, "createdBefore": str, "customTimeBefore": str, "daysSinceCustomTime": int,
    "daysSinceNoncurrentTime": int, "isLive": bool, "matchesPrefix": [str], "matchesStorageClass": [str],
    "matchesSuffix": [str], "noncurrentTimeBefore": str, "numNewerVersions": int,
}  # fmt: skip
_SETTABLE: Final[dict[str, Shape]] = {
    "iamConfiguration": {
        "uniformBucketLevelAccess": _SWITCH, "bucketPolicyOnly": _SWITCH, "publicAccessPrevention": str,
    },
    "labels": {"*": str},
    "lifecycle": {"rule": [{"action": {"type": str, "storageClass": str}, "condition": _CONDITION}]},
    "softDeletePolicy": {"retentionDurationSeconds": int, "effectiveTime": str},
    "storageClass": str,
    "versioning": {"enabled": bool},
}  # fmt: skip
_OTHERS: Final[dict[str, Shape]] = {
    "customPlacementConfig": {"dataLocations": [str]}, "etag": str, "generation": int, "id": str, "kind": str,
    "location": str, "locationType": str, "metageneration": int, "name": str, "projectNumber": int,
    "selfLink": str, "timeCreated": str, "updated": str,
}  # fmt: skip
"""Fields that only the creation or the service sets."""
_ACTIONS: Final = {"AbortIncompleteMultipartUpload", "Delete", "SetStorageClass"}
_CLASSES: Final = {"STANDARD", "NEARLINE", "COLDLINE", "ARCHIVE"}
_LABEL: Final = re.compile(r"[a-z][a-z0-9_-]{0,62}=[a-z0-9_-]{0,63}")
_LOCATION: Final = re.compile(r"US|EU|ASIA|ASIA1|NAM4|EUR[4578]|[A-Z]+-[A-Z]+[0-9]+")
_DAY: Final = 24 * 60 * 60
_DEFAULTS: Final[dict[str, Any]] = {
    "iamConfiguration": {
        "uniformBucketLevelAccess": {"enabled": False},
        "publicAccessPrevention": "inherited",
    },
    "softDeletePolicy": {"retentionDurationSeconds": str(7 * _DAY)},
}


def check_location(location: str) -> None:
    """Refuse a location in upper case that does not exist, as far as its form tells."""
    if not _LOCATION.fullmatch(location):
        raise invalid("The specified location constraint is not valid.")


def bucket_fields(given: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a new bucket, checked."""
    return merged_bucket_fields(_DEFAULTS, given)


def merged_bucket_fields(old: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return the fields after a patch: None removes; labels and the access are merged key by key."""
    check_shape(given, {**_SETTABLE, **_OTHERS})
    fields = {**old, **{key: value for key, value in given.items() if key in _SETTABLE}}
    for key in ("iamConfiguration", "labels"):
        if given.get(key) is not None:
            merged = {**old.get(key, {}), **given[key]}
            fields[key] = {name: value for name, value in merged.items() if value is not None}
    fields = {key: value for key, value in fields.items() if value not in (None, {})}
    fields = {**_DEFAULTS, **fields}
    fields["iamConfiguration"] = {**_DEFAULTS["iamConfiguration"], **fields["iamConfiguration"]}
    _check_access(fields["iamConfiguration"], given.get("iamConfiguration") or {})
    for key, value in fields.get("labels", {}).items():
        if not _LABEL.fullmatch(f"{key}={value}"):
            raise invalid(f"Invalid argument: the label {key}={value} is not valid.")
    for rule in fields.get("lifecycle", {}).get("rule", ()):
        _check_rule(rule)
    kept = int(fields["softDeletePolicy"].get("retentionDurationSeconds", 0))
    if kept != 0 and not 7 * _DAY <= kept <= 90 * _DAY:
        raise invalid("Soft delete policy retention duration must be 0 or between 7 and 90 days.")
    fields["softDeletePolicy"] = {"retentionDurationSeconds": str(kept)}
    if fields.get("storageClass", "STANDARD") not in _CLASSES:
        raise invalid(f"The storage class {fields['storageClass']} is not valid.")
    return fields


def _check_access(access: dict[str, Any], given: dict[str, Any]) -> None:
    # An old name of the same switch, which the client still sends.
    uniform = given.get("uniformBucketLevelAccess") or given.get("bucketPolicyOnly")
    if uniform is not None:
        access["uniformBucketLevelAccess"] = {"enabled": bool(uniform.get("enabled"))}
    access["bucketPolicyOnly"] = access["uniformBucketLevelAccess"]
    if access["publicAccessPrevention"] not in ("enforced", "inherited"):
        raise invalid(f"Invalid argument: {access['publicAccessPrevention']}.")


def _check_rule(rule: dict[str, Any]) -> None:
    action, condition = rule.get("action", {}), rule.get("condition", {})
    kind = action.get("type")
    if kind not in _ACTIONS or (kind == "SetStorageClass") != ("storageClass" in action):
        raise invalid(f"Invalid argument: the action {action} of a lifecycle rule is not valid.")
    if not condition:
        raise invalid("Invalid argument: a lifecycle rule needs a condition.")
    if kind == "AbortIncompleteMultipartUpload" and not condition.keys() <= {
        "age",
        "matchesPrefix",
        "matchesSuffix",
    }:
        raise invalid(f"Invalid argument: {kind} does not support this condition: {condition}.")
    for name, value in condition.items():
        if isinstance(value, int) and value < 0:
            raise invalid(f"Invalid argument: {name} must not be negative.")
        if isinstance(value, list) and not (value and len(value) <= 50 and all(value)):
            raise invalid(f"Invalid argument: {name} must have between 1 and 50 values.")
