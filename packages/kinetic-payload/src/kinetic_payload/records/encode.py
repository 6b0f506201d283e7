"""Records as JSON: write them, and read them without checks.

The client reads them strictly with `records.decode`. A reader ignores keys that it does not know, so that a
newer writer does not break an older reader of the same `version`; a greater `version` is refused.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kinetic_payload.records.batch import GroupManifest
    from kinetic_payload.records.claim import Claim, Lease
    from kinetic_payload.records.host_outcome import HostOutcome
    from kinetic_payload.records.job import JobRecord
    from kinetic_payload.records.outcome import Outcome, Summary
    from kinetic_payload.records.usage import PendingReasons, Usage

    Record = (
        HostOutcome
        | Claim
        | Lease
        | Outcome
        | Summary
        | JobRecord
        | GroupManifest
        | Usage
        | PendingReasons
    )


def encode(record: Record) -> bytes:
    """Return *record* as readable JSON: one line, with sorted keys."""
    values = _without_none(asdict(record, dict_factory=_fields))
    if "job" in values:
        values["job"] = _without_none(values["job"])
    return json.dumps(values, sort_keys=True, ensure_ascii=False).encode(errors="backslashreplace")


def _fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # A record within another keeps keys that are None. One that was added later is left out, as in older records.
    return {key: value for key, value in pairs if value is not None or key != "exited_with"}


def _without_none(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def fields_of(data: bytes) -> dict[str, Any]:
    """Return the fields of the record *data*, unchecked; no fields if it is not a record."""
    try:
        values = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}
