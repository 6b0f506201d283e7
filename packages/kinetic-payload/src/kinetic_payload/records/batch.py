"""`GroupManifest`: the record of a batch."""

from __future__ import annotations

from dataclasses import dataclass

from kinetic_payload.layout import WIRE_VERSION


@dataclass(frozen=True, kw_only=True)
class GroupManifest:
    """A batch. It is written once; the ids of its jobs are derived from it."""

    group_id: str
    name: str | None = None
    tags: dict[str, str]
    created_at: str
    total_expected: int
    accelerator: str
    func_name: str
    signature: str | None = None
    version: int = WIRE_VERSION
