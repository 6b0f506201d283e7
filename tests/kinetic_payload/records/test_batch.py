"""When a batch stops, and what becomes of the inputs that run."""

from __future__ import annotations

import pytest

from kinetic_payload.records.batch import GroupManifest
from kinetic_payload.records.outcome import FinalStatus


def a_batch(**limits: object) -> GroupManifest:
    return GroupManifest(
        group_id="grp-0a1b2c3d", tags={}, created_at="", total_expected=6, accelerator="cpu",
        func_name="f", **limits,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("limits", "stopped", "seen", "step"),
    [
        ({}, None, {"failed": 6}, "go on"),
        ({"fail_fast": True}, None, {}, "go on"),
        ({"fail_fast": True, "max_failures": 3}, None, {"failed": 1}, "stop"),
        ({"max_failures": 2}, None, {"failed": 2}, "go on"),
        ({"max_failures": 2}, None, {"failed": 3}, "stop"),
        ({}, "failed", {"running": True}, "drain"),
        ({}, "failed", {"running": False}, "end"),
        ({"cancel_running_on_fail": True}, "failed", {"running": True}, "end"),
        ({}, "cancelled", {"running": True}, "end"),
        ({}, "succeeded", {}, "end"),
    ],
)
def test_the_limits_of_a_batch_and_its_outcome_decide_what_follows(
    limits: dict[str, object], stopped: FinalStatus | None, seen: dict[str, int], step: str
) -> None:
    assert a_batch(**limits).next_step(stopped, **seen) == step
