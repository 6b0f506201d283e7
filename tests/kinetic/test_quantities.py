from __future__ import annotations

import math
from datetime import timedelta
from fractions import Fraction

import pytest

from kinetic.errors import InvalidRequestError
from kinetic.quantities import parse_count, parse_cpu, parse_memory, parse_timeout, parse_wait

MI = 1024**2


@pytest.mark.parametrize(
    ("amount", "expected"),
    [
        (None, None),
        (MI, MI),
        (2**40, 2**40),
        ("16Gi", 16 * 1024**3),
        ("500M", 500_000_000),
        ("1e9", 10**9),
        ("1.5E+9", 1_500_000_000),
        ("2e9", 2 * 10**9),
        ("+2.Mi", 2 * MI),
        (".5Gi", 512 * MI),
        ("1P", 10**15),
        ("7Ei", 7 * 2**60),
        ("1E", 10**18),
        ("1048576000m", MI),
        ("1048576001m", MI + 1),
        ("1048576.0000000000000000000001", MI + 1),
        ("1.5Gi", 1536 * MI),
        ("2000k", 2_000_000),
        ("2048Ki", 2 * MI),
        ("1T", 10**12),
        ("1Ti", 2**40),
        ("2000000", 2_000_000),
        ("1.1M", 1_100_000),
    ],
)
def test_memory_is_bytes(amount: object, expected: int | None) -> None:
    assert parse_memory("memory", amount) == expected


@pytest.mark.parametrize(
    "amount",
    [
        "", "16GB", "16gi", "Gi", "-1Gi", "1,5Gi", "0", 0, -1, 1.5e9, True, math.inf, [], b"1Gi",
        "16 Gi", " 500M ", "500M\n", "500000K", "1_000Mi", "٥٠٠Mi", "５００Mi", "nan", "inf", "1e", "1e3Ki",
        "8Ei", "1e400", "1e999999999999", 2**63,
    ],
)  # fmt: skip
def test_what_is_no_memory_is_refused_by_the_argument_s_name(amount: object) -> None:
    with pytest.raises(InvalidRequestError, match="shared_memory=") as caught:
        parse_memory("shared_memory", amount)

    assert "'16Gi'" in str(caught.value)


@pytest.mark.parametrize(
    ("amount", "near"),
    [
        ("500000K", "Did you mean '500000k' or '500000Ki'?"),
        ("16GB", "Did you mean '16G' or '16Gi'?"),
        ("16gi", "Did you mean '16Gi'?"),
        ("16 GiB", "Did you mean '16Gi'?"),
        ("512m", "Did you mean '512M' or '512Mi'?"),
        ("٥٠٠Mi", "Did you mean '500Mi'?"),
        ("１６Ｇｉ", "Did you mean '16Gi'?"),
        ("1_000Mi", "Did you mean '1000Mi'?"),
    ],
)
def test_what_was_meant_is_said(amount: str, near: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        parse_memory("memory", amount)

    assert near in (caught.value.hint or "")


def test_more_cores_than_any_machine_has_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match=r"500,000,000 cores[\s\S]*500m"):
        parse_cpu("500M")


@pytest.mark.parametrize("amount", [16, "16", "1023Ki", "0.001k", 500_000])
def test_memory_that_forgot_its_unit_is_asked_for_it(amount: object) -> None:
    with pytest.raises(
        InvalidRequestError, match=r"too little to run anything[\s\S]*memory='16Gi'"
    ):
        parse_memory("memory", amount)


@pytest.mark.parametrize(
    ("amount", "expected"),
    [
        (None, None),
        (4, 4.0),
        (0.5, 0.5),
        ("4", 4.0),
        ("0.5", 0.5),
        ("500m", 0.5),
        ("1500m", 1.5),
        ("1e3", 1000.0),
        ("5e-1", 0.5),
        (".5", 0.5),
        ("5.", 5.0),
        ("1u", 0.001),
        ("1001u", 0.002),
        (0.069, 0.069),
        (1e-05, 0.001),
        ("0.0691", 0.07),
        (96, 96.0),
    ],
)
def test_a_processor_is_cores(amount: object, expected: float | None) -> None:
    assert parse_cpu(amount) == expected


@pytest.mark.parametrize(
    "amount", ["", "many", "4 cores", "m", "-1", "0", "0m", 0, -1, True, math.inf, math.nan, [], " 4", "1_0", "٤", "４",
        "1e400", 10**400],
)  # fmt: skip
def test_what_is_no_processor_is_refused(amount: object) -> None:
    with pytest.raises(InvalidRequestError, match="not a number of cores") as caught:
        parse_cpu(amount)

    assert "'500m'" in str(caught.value)


@pytest.mark.parametrize(
    ("amount", "expected"),
    [(None, None), (3600, 3600.0), (0.5, 0.5), (timedelta(hours=1, milliseconds=500), 3600.5)],
)
def test_a_timeout_is_seconds(amount: object, expected: float | None) -> None:
    seconds = parse_timeout(amount)

    assert seconds == expected
    assert seconds is None or type(seconds) is float


@pytest.mark.parametrize(
    "amount",
    [
        0,
        -1,
        timedelta(0),
        timedelta(seconds=-1),
        "1h",
        "60",
        True,
        math.inf,
        math.nan,
        Fraction(1),
        10**400,
    ],
)
def test_what_is_no_length_of_time_is_refused(amount: object) -> None:
    with pytest.raises(InvalidRequestError, match="not a duration") as caught:
        parse_timeout(amount)

    assert "timedelta" in str(caught.value)


@pytest.mark.parametrize(
    ("amount", "expected"),
    [
        (None, None),
        (math.inf, None),
        (10**400, None),
        (0, 0.0),
        (-1, 0.0),
        (2.5, 2.5),
        (timedelta(seconds=3), 3.0),
    ],
)
def test_a_wait_may_be_none_at_all_or_without_end(amount: object, expected: float | None) -> None:
    assert parse_wait(amount) == expected


@pytest.mark.parametrize("amount", ["60", True, math.nan, Fraction(1)])
def test_a_wait_that_would_never_end_or_begin_is_refused(amount: object) -> None:
    with pytest.raises(InvalidRequestError, match="not a duration"):
        parse_wait(amount)


@pytest.mark.parametrize("amount", [0, 1, 10_000])
def test_a_count_may_be_zero(amount: int) -> None:
    assert parse_count("retries", amount) == amount


@pytest.mark.parametrize("amount", [-1, 1.0, "1", True, None, math.inf])
def test_what_cannot_be_counted_is_refused(amount: object) -> None:
    with pytest.raises(InvalidRequestError, match="retries="):
        parse_count("retries", amount)
