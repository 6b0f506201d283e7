"""Outages: one limit for many calls and threads, and what is reported of it."""

from __future__ import annotations

from kinetic_payload.stores.outages import OutageLimit


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_time_is_counted_from_the_first_failure_since_something_worked() -> None:
    clock = Clock()
    limit = OutageLimit(60, clock=clock)
    clock.now = 100
    assert limit.left == 60

    limit.failed(95, OSError())
    limit.failed(99, OSError())
    clock.now = 154
    assert limit.left == 1
    assert limit.at_most(40) == 1
    assert limit.at_most(0.1) == 0.1
    clock.now = 155
    assert limit.left == 0
    assert limit.at_most(40) == 0.5, "what is tried all the same is not hopeless"

    limit.worked()
    assert limit.left == 60


def test_a_failure_is_reported_after_a_while_unless_a_request_succeeds_before() -> None:
    clock, reports = Clock(), list[str]()
    limit = OutageLimit(600, report=reports.append, clock=clock)

    def fail(now: float) -> None:
        clock.now = now
        limit.failed(now, OSError())
        limit.explain(f"at {now}")

    for now in (0, 2):
        fail(now)
    limit.worked()
    for now in (10, 12, 13, 40, 72, 73):
        fail(now)

    assert reports == ["at 13", "at 73"]
