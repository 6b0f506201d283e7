from __future__ import annotations

from kinetic.waiting import Backoff, Deadline, poll_interval


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


def test_delays_grow_to_a_limit_and_start_over_after_a_success() -> None:
    backoff = Backoff(1, 5, rand=lambda: 0.0)

    assert [backoff.next() for _ in range(5)] == [1, 2, 4, 5, 5]
    backoff.reset()
    assert backoff.next() == 1
    assert Backoff(4, 10, rand=lambda: 1.0).next() == 2  # Jitter only shortens.


def test_the_poll_interval_grows_with_the_time_waited() -> None:
    assert [poll_interval(s) for s in (0, 1, 1000)] == [0.002, 0.05, 0.25]
