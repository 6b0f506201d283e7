from __future__ import annotations

import pytest

from kinetic_cli.output import age_of, age_text


def test_the_text_of_an_age_has_one_unit() -> None:
    assert age_text(300) == "5m"
    assert age_text(None) is None


@pytest.mark.parametrize(
    ("created_at", "age"),
    [
        ("1970-01-01T00:01:00+00:00", 40.0),
        ("1970-01-01T00:01:00Z", 40.0),
        ("1970-01-01T01:01:00+01:00", 40.0),
        ("1970-01-01T00:01:00", 40.0),
        ("1970-01-01T00:05:00Z", 0.0),
        ("yesterday", None),
    ],
)
def test_an_age_is_computed_from_a_time_in_any_zone(created_at: str, age: float | None) -> None:
    assert age_of(created_at, now=100.0) == age
