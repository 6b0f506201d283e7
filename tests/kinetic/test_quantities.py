"""Amounts in arguments. The syntax of quantities is tested with `kinetic_k8s.quantity`."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta
from fractions import Fraction
from functools import partial

import pytest

from kinetic.errors import InvalidRequestError
from kinetic.quantities import parse_count, parse_cpu, parse_memory, parse_timeout, parse_wait

MI = 1024**2
HUGE = 10**400

memory = partial(parse_memory, "memory")
count = partial(parse_count, "retries")


@pytest.mark.parametrize(
    ("parse", "amount", "expected"),
    [
        (memory, None, None), (memory, MI, MI), (memory, "16Gi", 16 * 1024**3), (memory, "500M", 500_000_000),
        (memory, "2e9", 2 * 10**9), (memory, "1048576001m", MI + 1), (memory, "7Ei", 7 * 2**60),
        (parse_cpu, None, None), (parse_cpu, 4, 4.0), (parse_cpu, "1500m", 1.5), (parse_cpu, "1001u", 0.002),
        (parse_cpu, 0.069, 0.069), (parse_cpu, 1e-05, 0.001), (parse_cpu, 100_000, 100_000.0),
        (parse_timeout, None, None), (parse_timeout, 3600, 3600.0), (parse_timeout, 0.5, 0.5),
        (parse_timeout, timedelta(hours=1, milliseconds=500), 3600.5),
        (parse_wait, None, None), (parse_wait, math.inf, None), (parse_wait, HUGE, None), (parse_wait, 0, 0.0),
        (parse_wait, -1, 0.0), (parse_wait, 2.5, 2.5), (parse_wait, timedelta(seconds=3), 3.0),
        (count, 0, 0), (count, 10_000, 10_000),
    ],
)  # fmt: skip
def test_an_amount_is_converted_to_its_unit(
    parse: Callable[[object], float | None], amount: object, expected: float | None
) -> None:
    assert parse(amount) == expected


def test_a_timeout_is_a_float() -> None:
    assert type(parse_timeout(3600)) is float


@pytest.mark.parametrize(
    ("parse", "amounts", "message", "hint"),
    [
        (
            memory,
            ["", "16GB", "-1Gi", "0", 0, -1, 1.5e9, True, math.inf, [], b"1Gi", "8Ei", 2**63],
            "memory=.* is not an amount of memory",
            "'16Gi'",
        ),
        (memory, [16, "1023Ki", 500_000], "too little to run anything", "memory='16Gi'"),
        (
            parse_cpu,
            ["", "many", "4 cores", "0m", 0, -1, True, math.inf, math.nan, [], HUGE],
            "not a number of cores",
            "'500m'",
        ),
        (parse_cpu, ["500M"], "500,000,000 cores, which no machine has", "500m"),
        (
            parse_timeout,
            [0, -1, timedelta(0), "1h", True, math.inf, math.nan, Fraction(1), HUGE],
            "not a duration",
            "timedelta",
        ),
        (parse_wait, ["60", True, math.nan, Fraction(1)], "not a duration", "None means"),
        (count, [-1, 1.0, "1", True, None, math.inf], "retries=.* is not a count", "0, 1"),
    ],
)
def test_an_invalid_amount_is_refused_with_its_argument_and_an_example(
    parse: Callable[[object], object], amounts: list[object], message: str, hint: str
) -> None:
    for amount in amounts:
        with pytest.raises(InvalidRequestError, match=message) as caught:
            parse(amount)
        assert hint in (caught.value.hint or "")
