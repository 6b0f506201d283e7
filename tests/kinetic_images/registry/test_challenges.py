from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinetic_images.registry.challenges import Challenge, parse_challenges


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("", ()),
        ('Basic realm="a b"', (Challenge("basic", {"realm": "a b"}),)),
        (
            'Bearer realm="https://auth.docker.io/token",service="registry.docker.io",'
            'scope="repository:library/python:pull,push"',
            (
                Challenge(
                    "bearer",
                    {
                        "realm": "https://auth.docker.io/token",
                        "service": "registry.docker.io",
                        "scope": "repository:library/python:pull,push",
                    },
                ),
            ),
        ),
        ('BEARER Realm = token , error="x\\"y", Basic realm=b', (Challenge("bearer", {"realm": "token", "error": 'x"y'}), Challenge("basic", {"realm": "b"}))),
        ('Negotiate, Basic realm="b"', (Challenge("negotiate"), Challenge("basic", {"realm": "b"}))),
        ('Bearer realm="a",realm="b"', (Challenge("bearer", {"realm": "a"}),)),
        ('Bearer realm="never ends', (Challenge("bearer"), Challenge("never"), Challenge("ends"))),
    ],
)  # fmt: skip
def test_challenges_are_read(header: str, expected: tuple[Challenge, ...]) -> None:
    assert parse_challenges(header) == expected


@given(st.text())
def test_any_header_is_read(header: str) -> None:
    for challenge in parse_challenges(header):
        assert challenge.scheme == challenge.scheme.lower()


@pytest.mark.parametrize("part", ['a="', "a=", "a ,", '\\"'])
@pytest.mark.timeout(120)  # In quadratic time, it takes hours.
def test_a_huge_header_is_read_in_linear_time(part: str) -> None:
    parse_challenges("Bearer " + part * 500_000)
