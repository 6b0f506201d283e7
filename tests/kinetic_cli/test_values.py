"""Values as text, and whether the text is complete."""

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
    """Return whether both are equal, with the types of all parts."""
    if type(one) is not type(other) or one != other:
        return False
    if isinstance(one, dict):
        pairs = zip(one.items(), other.items(), strict=True)
        return all(same(tuple(a), tuple(b)) for a, b in pairs)
    if isinstance(one, list | tuple):
        return all(same(a, b) for a, b in zip(one, other, strict=True))
    return True


@given(VALUES)
def test_text_and_json_that_are_complete_restore_the_value(value: object) -> None:
    (text, complete), document = text_of(value), json_of(value)

    if complete:
        assert same(ast.literal_eval(text), value)
    if document is not None:
        assert same(json.loads(document), value)


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
def test_values_of_the_types_of_json_are_complete_in_both_forms(value: object) -> None:
    assert json_of(value) is not None
    assert text_of(value) == (repr(value), True)


def nested(depth: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


def test_a_value_that_is_nested_too_deep_or_in_itself_is_incomplete() -> None:
    itself: list[Any] = []
    itself.append(itself)
    for value in (nested(200), nested(100_000), itself):
        assert json_of(value) is None
        assert not text_of(value)[1]
    assert same(json.loads(json_of(nested(90)) or ""), nested(90))
    assert same(ast.literal_eval(text_of(nested(90))[0]), nested(90))
