"""When a batch stops: whole batches, in which nothing but `next_step` decides, in any order of events."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinetic_payload.records.batch import GroupManifest
from kinetic_payload.records.outcome import FinalStatus

INPUTS, WORKERS = 6, 3


def a_batch(**limits: object) -> GroupManifest:
    return GroupManifest(
        group_id="grp-0a1b2c3d", tags={}, created_at="", total_expected=INPUTS, accelerator="cpu",
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


class Story:
    """A batch whose workers and user do what a test says."""

    def __init__(self, batch: GroupManifest) -> None:
        self.batch = batch
        self.stop: FinalStatus | None = None
        self.waiting = list(range(INPUTS))
        self.running: dict[int, int] = {}
        """By worker."""
        self.ends: dict[int, str] = {}
        self.gone: set[int] = set()

    def write(self, stop: FinalStatus) -> None:
        self.stop = self.stop or stop  # The first outcome stays.

    def take(self, worker: int) -> None:
        if worker in self.gone or worker in self.running:
            return
        step = self.batch.next_step(self.stop)
        assert step == ("go on" if self.stop is None else "end")
        if step == "go on" and self.waiting:
            self.running[worker] = self.waiting.pop(0)
        else:
            self.gone.add(worker)

    def finish(self, worker: int, how: str) -> None:
        if worker in self.running:
            self.ends[self.running.pop(worker)] = how
            failed = [*self.ends.values()].count("failure")
            if how == "failure" and self.batch.next_step(None, failed=failed) == "stop":
                self.write("failed")

    def watch(self, worker: int) -> None:
        if worker in self.running and self.batch.next_step(self.stop, running=True) == "end":
            self.ends[self.running.pop(worker)] = "stopped"

    def happen(self, what: str, worker: int) -> None:
        if what == "take":
            self.take(worker)
        elif what == "watch":
            self.watch(worker)
        elif what == "cancel":
            self.write("cancelled")
        else:
            self.finish(worker, what)


@given(
    st.builds(
        a_batch,
        fail_fast=st.booleans(),
        cancel_running_on_fail=st.booleans(),
        max_failures=st.none() | st.integers(0, INPUTS),
    ),
    st.lists(
        st.tuples(
            st.sampled_from(["take", "take", "value", "failure", "watch", "cancel"]),
            st.integers(0, WORKERS - 1),
        )
    ),
)
def test_a_batch_stops_for_a_reason_and_then_starts_nothing_and_kills_only_what_it_may(
    batch: GroupManifest, events: list[tuple[str, int]]
) -> None:
    story = Story(batch)
    for what, worker in events:
        begun = INPUTS - len(story.waiting)
        stopped = story.stop
        story.happen(what, worker)
        assert stopped is None or INPUTS - len(story.waiting) == begun, "it started another input"
    for what in ["watch", "value", "take"] * (INPUTS + 1):
        for worker in range(WORKERS):
            story.happen(what, worker)

    ends, most = [*story.ends.values()], 0 if batch.fail_fast else batch.max_failures
    assert story.gone == {*range(WORKERS)}
    assert not story.running, "nothing is waited for"
    assert bool(story.waiting) <= (story.stop is not None)
    too_many = most is not None and ends.count("failure") > most
    assert (story.stop == "failed") <= too_many <= (story.stop is not None)
    assert (story.stop == "cancelled") <= ("cancel" in dict(events))
    may_kill = story.stop == "cancelled" or batch.cancel_running_on_fail
    assert ("stopped" in ends) <= (story.stop is not None and may_kill)
