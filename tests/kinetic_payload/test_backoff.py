"""Pauses between retries."""

from __future__ import annotations

from kinetic_payload.backoff import Backoff


def test_delays_grow_to_a_limit_and_start_over_after_a_success() -> None:
    backoff = Backoff(1, 5, rand=lambda: 0.0)

    assert [backoff.next() for _ in range(5)] == [1, 2, 4, 5, 5]
    backoff.reset()
    assert backoff.next() == 1
    assert Backoff(4, 10, jitter=0.5, rand=lambda: 1.0).next() == 2  # Jitter only shortens.
