from __future__ import annotations

from datetime import UTC, datetime

import pytest

from kinetic_payload.http.retry import GaveUpError, RetryPolicy, TransientError, retry_after

NOW = datetime(2026, 11, 24, 12, 0, tzinfo=UTC)


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
    assert clock.now <= 60.1  # The last pause ends with the time.
    limits = [1, 2, 4, *[8] * len(clock.pauses)]
    assert all(
        limit / 2 <= pause <= limit for pause, limit in zip(clock.pauses[:-1], limits, strict=False)
    )
    assert len(clock.pauses) >= 8


def test_other_errors_are_not_retried(clock: Clock) -> None:
    def act(_: float) -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        RetryPolicy(clock=clock, pause=clock.pause).run(act)
    assert clock.pauses == []


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("7", 7.0),
        ("0.5", 0.5),
        ("3600", 30.0),
        ("Tue, 24 Nov 2026 12:00:09 GMT", 9.0),
        ("Tue, 24 Nov 2026 11:00:00 GMT", 0.0),
        ("-3", 0.0),
        ("inf", 0.0),
        ("nan", 0.0),
        ("soon", 0.0),
        ("Mon, 01 Jan 99999999999999999999 00:00:00 GMT", 0.0),
        ("", 0.0),
    ],
)
def test_retry_after_is_read_as_seconds_or_a_date(value: str, seconds: float) -> None:
    assert retry_after({"Retry-After": value}, NOW) == seconds
