from __future__ import annotations

from kinetic.waiting import Deadline, poll_interval


def test_a_deadline_has_passed_once_its_time_is_up() -> None:
    now = [100.0]
    deadline = Deadline(5, clock=lambda: now[0])

    assert not deadline.passed
    assert deadline.at_most(60) == 5
    now[0] = 106
    assert deadline.passed
    assert deadline.remaining == 0


def test_without_a_limit_a_deadline_never_passes() -> None:
    deadline = Deadline(None)

    assert not deadline.passed
    assert deadline.remaining is None
    assert deadline.at_most(60) == 60


def test_the_poll_interval_grows_with_the_time_waited() -> None:
    assert [poll_interval(s) for s in (0, 1, 1000)] == [0.02, 0.05, 0.25]
