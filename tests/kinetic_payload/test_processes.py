from __future__ import annotations

from kinetic_payload.processes import sweep


def test_each_round_reaches_what_the_one_before_left_however_long_that_takes() -> None:
    left, pauses = [True, False, False], []

    sweep(left.pop, pause=lambda: pauses.append("short"), seconds=0.0)

    assert left == []
    assert pauses == ["short", "short"]


def test_what_cannot_be_killed_is_given_up_after_fifty_rounds() -> None:
    rounds = []

    sweep(lambda: bool(rounds.append("again")), pause=lambda: None, seconds=0.0)

    assert len(rounds) == 50
