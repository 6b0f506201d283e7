from __future__ import annotations

from kinetic.waiting import Backoff, Deadline, poll_interval


def test_a_deadline_passes_when_its_time_is_up() -> None:
    now = [100.0]
    deadline = Deadline(5, clock=lambda: now[0])

    assert not deadline.passed
    assert deadline.at_most(60) == 5
    now[0] = 103
    assert deadline.remaining == 2
    now[0] = 106
    assert deadline.passed
    assert deadline.remaining == 0


def test_no_deadline_never_passes() -> None:
    deadline = Deadline(None)

    assert not deadline.passed
    assert deadline.remaining is None
    assert deadline.at_most(60) == 60


def test_delays_grow_to_a_limit_and_begin_again_after_a_success() -> None:
    backoff = Backoff(1, 5, rand=lambda: 0.0)

    assert [backoff.next() for _ in range(5)] == [1, 2, 4, 5, 5]
    backoff.reset()
    assert backoff.next() == 1


def test_jitter_only_shortens() -> None:
    assert Backoff(4, 10, jitter=0.5, rand=lambda: 1.0).next() == 2


def test_long_waits_are_looked_at_less_often() -> None:
    assert [poll_interval(s) for s in (0, 1, 1000)] == [0.002, 0.05, 0.25]
