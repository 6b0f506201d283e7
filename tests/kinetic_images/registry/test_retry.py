from __future__ import annotations

import pytest

from kinetic_images.registry.retry import GaveUpError, RetryPolicy, TransientError


class Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []

    def __call__(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


def failing(clock: Clock, seconds: float, **what: float) -> object:
    def act(_: float) -> None:
        clock.now += seconds
        raise TransientError("down", **what)  # type: ignore[arg-type]

    return act


def test_pauses_grow_up_to_a_limit_and_end_with_the_time(clock: Clock) -> None:
    policy = RetryPolicy(limit=60, first=1, longest=8, clock=clock, pause=clock.pause)

    with pytest.raises(GaveUpError, match="down"):
        policy.run(failing(clock, 0.1))  # type: ignore[arg-type]
    assert clock.now <= 60.1  # The last try begins within the time.
    limits = [1, 2, 4, *[8] * len(clock.pauses)]
    assert all(
        limit / 2 <= pause <= limit for pause, limit in zip(clock.pauses, limits, strict=False)
    )
    assert len(clock.pauses) >= 8


def test_a_longer_pause_is_made_if_it_is_asked_for_up_to_half_a_minute(clock: Clock) -> None:
    policy = RetryPolicy(limit=70, first=1, clock=clock, pause=clock.pause)

    with pytest.raises(GaveUpError):
        policy.run(failing(clock, 0, retry_after=1000.0))  # type: ignore[arg-type]
    assert clock.pauses == [30, 30]


def test_progress_restarts_the_time(clock: Clock) -> None:
    policy = RetryPolicy(limit=10, first=1, longest=1, clock=clock, pause=clock.pause)
    tries: list[float] = []

    def act(left: float) -> str:
        tries.append(left)
        clock.now += 9
        if len(tries) < 5:
            raise TransientError("down")
        return "done"

    assert policy.run(act, progress=lambda: len(tries)) == "done"
    assert clock.now > 45
    with pytest.raises(GaveUpError):
        policy.run(failing(clock, 9), progress=lambda: 7)  # type: ignore[arg-type]


def test_other_errors_are_not_retried(clock: Clock) -> None:
    def act(_: float) -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        RetryPolicy(clock=clock, pause=clock.pause).run(act)
    assert clock.pauses == []
