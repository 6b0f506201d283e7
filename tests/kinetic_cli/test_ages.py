"""Ages are said in the unit a person would use."""

from __future__ import annotations

import pytest

from kinetic_cli.ages import age_of, spoken


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.4, "0s"),
        (119, "119s"),
        (120, "2m"),
        (7199, "119m"),
        (7200, "2h"),
        (172_799, "47h"),
        (172_800, "2d"),
        (None, None),
    ],
)
def test_an_age_is_said_in_the_unit_that_fits(seconds: float | None, said: str | None) -> None:
    assert spoken(seconds) == said


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
def test_an_age_is_the_time_since_then_in_any_zone(created_at: str, age: float | None) -> None:
    assert age_of(created_at, now=100.0) == age
