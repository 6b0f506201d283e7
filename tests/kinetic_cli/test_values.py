"""Values as text: what is said to hold all of a value does."""

from __future__ import annotations

import ast
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kinetic_cli.values import json_of, text_of

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), st.binary(max_size=2)
)
HASHABLE = st.recursive(SCALARS, lambda one: st.lists(one, max_size=2).map(tuple), max_leaves=3)
VALUES = st.recursive(
    st.one_of(
        HASHABLE, st.complex_numbers(), st.sampled_from([..., frozenset({1}), range(2), "\ud800"])
    ),
    lambda one: st.one_of(
        st.lists(one, max_size=3),
        st.lists(one, max_size=3).map(tuple),
        st.dictionaries(HASHABLE, one, max_size=3),
        st.sets(HASHABLE, max_size=3),
    ),
    max_leaves=8,
)


def same(one: Any, other: Any) -> bool:
    """Tell whether both are equal, types included, all the way down."""
    if type(one) is not type(other) or one != other:
        return False
    if isinstance(one, dict):
        pairs = zip(one.items(), other.items(), strict=True)
        return all(same(tuple(a), tuple(b)) for a, b in pairs)
    if isinstance(one, list | tuple):
        return all(same(a, b) for a, b in zip(one, other, strict=True))
    return True


@given(VALUES)
def test_text_that_is_whole_gives_the_value_back(value: object) -> None:
    text, whole = text_of(value)

    if whole:
        assert same(ast.literal_eval(text), value)


@given(VALUES)
def test_json_gives_the_value_back(value: object) -> None:
    text = json_of(value)

    if text is not None:
        assert same(json.loads(text), value)


@given(
    st.recursive(
        st.one_of(
            st.none(),
            st.booleans(),
            st.integers(),
            st.floats(allow_nan=False, allow_infinity=False),
        ),
        lambda one: (
            st.lists(one, max_size=3) | st.dictionaries(st.text(max_size=3), one, max_size=3)
        ),
    )
)
def test_what_json_consists_of_is_whole_both_ways(value: object) -> None:
    assert json_of(value) is not None
    assert text_of(value) == (repr(value), True)


def nested(depth: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


def test_what_is_nested_too_deep_or_in_itself_is_not_whole() -> None:
    itself: list[Any] = []
    itself.append(itself)
    for value in (nested(200), nested(100_000), itself):
        assert json_of(value) is None
        assert not text_of(value)[1]
    assert same(json.loads(json_of(nested(90)) or ""), nested(90))
    assert same(ast.literal_eval(text_of(nested(90))[0]), nested(90))
