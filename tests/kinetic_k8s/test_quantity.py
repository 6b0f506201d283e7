from __future__ import annotations

import math
from fractions import Fraction

import pytest

from kinetic_k8s.quantity import parse_quantity, quantity_of


# What `resource.ParseQuantity` of k8s.io/apimachinery makes of the text: its Value and MilliValue.
@pytest.mark.parametrize(
    ("text", "whole", "thousandths"),
    [
        ("0", 0, 0),
        ("1", 1, 1000),
        ("01", 1, 1000),
        ("+1", 1, 1000),
        ("-1.5", -1, -1500),
        (".5", 1, 500),
        ("5.", 5, 5000),
        ("5.Gi", 5 * 2**30, 5000 * 2**30),
        ("0.1m", 1, 1),
        ("1n", 1, 1),
        ("1500u", 1, 2),
        ("2k", 2000, 2_000_000),
        ("1.5M", 1_500_000, 1_500_000_000),
        ("1G", 10**9, 10**12),
        ("1T", 10**12, 10**15),
        ("1P", 10**15, 10**18),
        ("1Ki", 1024, 1_024_000),
        ("1.1Mi", 1_153_434, 1_153_433_600),
        ("1Ti", 2**40, 1000 * 2**40),
        ("1Pi", 2**50, 1000 * 2**50),
        ("1e3", 1000, 1_000_000),
        ("1E3", 1000, 1_000_000),
        ("1e+3", 1000, 1_000_000),
        ("1.5e-1", 1, 150),
        ("12E-0", 12, 12_000),
        ("1e-400", 1, 1),
    ],
)
def test_a_quantity_has_the_value_that_kubernetes_gives_it(
    text: str, whole: int, thousandths: int
) -> None:
    amount = parse_quantity(text)

    assert amount is not None
    assert math.ceil(amount) == whole
    assert math.ceil(amount * 1000) == thousandths


def test_exa_and_exponents_are_told_apart() -> None:
    assert parse_quantity("1E") == 10**18
    assert parse_quantity("1Ei") == 2**60
    assert parse_quantity("1E1") == 10
    assert parse_quantity("1.000000000000000000001E") == Fraction(10**18) + Fraction(1, 1000)


@pytest.mark.parametrize(
    "text",
    [
        "", "K", "500K", "1ki", "1mi", "1gi", "1g", "1t", "1GB", "1Gib", "1B", "1ni", "1Km", "1mm",
        "1e", "1e+", "1E-", "1e3Ki", "1Ki3", "1k3", "1ee3", "1e1.5", "1e 3", "1.2.3", "1,5", "--1", "+-1",
        " 1", "1 ", "1 Gi", "1\n", "\t1", "1_000", "0x10", "nan", "inf", "Infinity", "٤", "４", "1٤", "²", "1Ｇ",
        # Kubernetes reads these as zero.
        ".", "+", "-", "e3", ".Gi",
        "1" * 5000, "1e9999",
    ],
)  # fmt: skip
def test_a_text_that_kubernetes_refuses_is_no_quantity(text: str) -> None:
    assert parse_quantity(text) is None


@pytest.mark.parametrize("text", ["400Gi", "1536Mi", "1Ti", "16G", "1500M", "1048577", "0"])
def test_bytes_are_written_as_people_read_them(text: str) -> None:
    assert quantity_of(int(parse_quantity(text) or 0)) == text
