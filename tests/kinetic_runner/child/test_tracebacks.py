from typing import Any

import pytest

from kinetic_runner.child.call import Raised, invoke
from kinetic_runner.child.stop_requests import Stopping
from kinetic_runner.child.tracebacks import TEXT_LIMIT, message_of, notes_of, text_of

pytestmark = pytest.mark.usefixtures("own_signals")


def error_of(function: Any) -> BaseException:
    end = invoke(function, (), {}, Stopping())
    assert isinstance(end, Raised)
    return end.error


def test_a_text_begins_with_the_users_frame_and_contains_causes_groups_and_notes() -> None:
    def train() -> None:
        try:
            # CPython 3.11 may leave an exception behind that a signal of an earlier test interrupted.
            raise KeyError("lr") from None
        except KeyError as cause:
            error = ExceptionGroup("two things", [ValueError("one"), TypeError("two")])
            error.add_note("seen at step 7")
            raise error from cause

    text = text_of(error_of(train))

    for piece in ("KeyError: 'lr'", "direct cause", "ValueError: one", "TypeError: two", "step 7"):
        assert piece in text
    assert "in train" in text.splitlines()[1]
    assert "kinetic_runner/child/call.py" not in text


def test_a_deep_recursion_is_bounded() -> None:
    def odd(n: int) -> Any:
        return even(n + 1)

    def even(n: int) -> Any:
        return odd(n + 1)

    text = text_of(error_of(lambda: odd(0)))

    assert len(text) < TEXT_LIMIT + 200
    assert text.count(", in even\n") <= 100
    assert "RecursionError" in text.splitlines()[-1]


def test_a_huge_message_is_bounded_everywhere() -> None:
    error = ValueError("x" * 5_000_000)
    error.add_note("n" * 5_000_000)

    assert len(text_of(error)) <= TEXT_LIMIT + 100
    assert len(message_of(error)) < 10_000
    assert len(notes_of(error)[0]) < 10_000


class Hostile(Exception):
    def __str__(self) -> str:
        raise SystemExit(9)

    @property
    def __notes__(self) -> Any:
        raise RuntimeError("no notes")


class OddNotes(Exception):
    __notes__ = 7


@pytest.mark.parametrize("error", [Hostile("x"), OddNotes("x")])
def test_classes_that_misbehave_still_give_text(error: Exception) -> None:
    assert type(error).__name__ in text_of(error)
    assert isinstance(message_of(error), str)
    assert notes_of(error) == ()


def test_a_cycle_of_causes_ends() -> None:
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one

    assert "two" in text_of(one)
