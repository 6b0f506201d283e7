"""Quantities as Kubernetes writes them: `16Gi`, `500m`, `1.5e3`."""

from __future__ import annotations

import re
from fractions import Fraction
from math import ceil
from typing import Final

_SCALE: Final = {
    **{unit: Fraction(10) ** power for unit, power in zip("num", (-9, -6, -3), strict=True)},
    "": Fraction(1),
    **{unit: Fraction(1000) ** power for power, unit in enumerate("kMGTPE", start=1)},
    **{f"{unit}i": Fraction(1024) ** power for power, unit in enumerate("KMGTPE", start=1)},
}
_QUANTITY: Final = re.compile(
    r"(?P<sign>[+-]?)(?=\.?[0-9])(?P<whole>[0-9]*)(?:\.(?P<part>[0-9]*))?"
    r"(?:[eE](?P<exponent>[+-]?[0-9]{1,3})|(?P<unit>[numkMGTPE]?|[KMGTPE]i))"
)
_LONGEST: Final = 100
"""The maximum length of a quantity."""


def parse_quantity(text: str) -> Fraction | None:
    """Return the exact value of the quantity *text*, or None if it is not valid.

    The grammar is that of `resource.ParseQuantity`, except that a string without digits, which is zero
    there, and one with an exponent of more than three digits, are not valid here. Kubernetes rounds the value up, to whole bytes and thousandths of cores.
    """
    if len(text) > _LONGEST or not (found := _QUANTITY.fullmatch(text)):
        return None
    part = found["part"] or ""
    amount = Fraction(int(found["whole"] + part), 10 ** len(part))
    if exponent := found["exponent"]:
        amount *= Fraction(10) ** int(exponent)
    else:
        amount *= _SCALE[found["unit"]]
    return -amount if found["sign"] == "-" else amount


def quantity_of(amount: int | Fraction) -> str:
    """Return *amount*, in bytes or cores, as a quantity that people can read: with the largest unit that divides it."""
    if amount.denominator != 1:
        return f"{ceil(amount * 1000)}m"
    for unit in ("Ei", "Pi", "Ti", "Gi", "Mi", "E", "P", "T", "G", "M"):
        if amount and amount % _SCALE[unit] == 0:
            return f"{amount // _SCALE[unit]}{unit}"
    return str(amount)
