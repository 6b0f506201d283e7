"""Amounts that a job may use: memory such as `16Gi`, cores such as `500m`, seconds, counts."""

from __future__ import annotations

import math
import re
import sys
from datetime import timedelta
from typing import Final

from kinetic.errors import InvalidRequestError

_MI: Final = 1024**2
_MOST: Final = 2**63 - 1
"""The most bytes, or thousandths of a core, that Kubernetes can represent."""
_MOST_CORES: Final = 100_000
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def parse_memory(name: str, amount: object) -> int | None:
    """Return *amount*, the value of the argument *name*, in bytes, rounded up.

    A string is parsed as a Kubernetes quantity: `16Gi`, `500M`, `1.5e9`.

    Raises:
        InvalidRequestError: It is not an amount of memory, or is less than 1 MiB.
    """
    if amount is None:
        return None
    found = None
    if isinstance(amount, int) and not isinstance(amount, bool):
        found = amount
    elif isinstance(amount, str):
        found = _rounded_up(amount)
    if found is None or not 0 < found <= _MOST:
        raise InvalidRequestError(
            f"{name}={amount!r} is not an amount of memory.",
            hint="Give bytes as a number, or a Kubernetes quantity such as '16Gi' or '500M'.",
        )
    if found < _MI:
        raise InvalidRequestError(
            f"{name}={amount!r} is {found} bytes, which is too little to run anything.",
            hint=f"A number without a unit means bytes; with a unit: {name}='16Gi'.",
        )
    return found


def parse_cpu(amount: object) -> float | None:
    """Return the argument `cpu` in cores, rounded up to thousandths of a core.

    A string is parsed as a Kubernetes quantity: `4`, `0.5`, `500m`.

    Raises:
        InvalidRequestError: It is not a number of cores, or more than any machine has.
    """
    if amount is None:
        return None
    found = None
    if isinstance(amount, int | float) and not isinstance(amount, bool):
        # Use its digits: 0.069 is 69 thousandths, although 1000 * 0.069 is more than 69.
        found = _rounded_up(repr(float(amount)), 1000) if 0 < amount <= _MOST else None
    elif isinstance(amount, str):
        found = _rounded_up(amount, 1000)
    if found is None or not 0 < found <= _MOST:
        raise InvalidRequestError(
            f"cpu={amount!r} is not a number of cores.",
            hint="Give a number such as 4 or 0.5, or a Kubernetes quantity such as '500m'.",
        )
    if found > 1000 * _MOST_CORES:
        raise InvalidRequestError(
            f"cpu={amount!r} is {found // 1000:,} cores, which no machine has.",
            hint="The unit m is a thousandth of a core: cpu='500m' is half a core.",
        )
    return found / 1000


def _rounded_up(text: str, parts: int = 1) -> int | None:
    """Return the quantity *text* in units of 1/*parts*, rounded up, or None if it is invalid."""
    from kinetic_k8s.quantity import parse_quantity

    amount = parse_quantity(text)
    return None if amount is None else math.ceil(amount * parts)


def parse_timeout(amount: object) -> float | None:
    """Return the argument `timeout` in seconds.

    Raises:
        InvalidRequestError: It is not a duration.
    """
    if amount is None:
        return None
    seconds = _seconds(amount)
    if seconds is None or not 0 < seconds <= sys.float_info.max:
        raise InvalidRequestError(
            f"timeout={amount!r} is not a duration.",
            hint="Give seconds (3600) or a timedelta greater than zero; None means no limit.",
        )
    return float(seconds)


def parse_wait(amount: object) -> float | None:
    """Return the argument `timeout` of `result` in seconds; None means no limit.

    Raises:
        InvalidRequestError: It is not a duration.
    """
    if amount is None:
        return None
    seconds = _seconds(amount)
    if seconds is None:
        raise InvalidRequestError(
            f"timeout={amount!r} is not a duration.",
            hint="Give seconds or a timedelta; None means no limit.",
        )
    return None if seconds > sys.float_info.max else max(0.0, float(seconds))


def check_pauses(**seconds: object) -> None:
    """Refuse *seconds*, arguments by name, that are not numbers of at least 0.

    Raises:
        InvalidRequestError: One is not.
    """
    for name, amount in seconds.items():
        found = _seconds(amount)
        if found is None or found < 0:
            raise InvalidRequestError(
                f"{name}={amount!r} is not a number of seconds.", hint="Give 0 or more."
            )


def _seconds(amount: object) -> float | None:
    """Return *amount*, a number or a timedelta, in seconds; None if it is neither."""
    seconds = amount.total_seconds() if isinstance(amount, timedelta) else amount
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or seconds != seconds:
        return None
    return seconds


def parse_count(name: str, amount: object) -> int:
    """Return *amount*, the value of the argument *name*, as a whole number of at least 0.

    Raises:
        InvalidRequestError: It is not one.
    """
    if isinstance(amount, bool) or not isinstance(amount, int) or amount < 0:
        raise InvalidRequestError(f"{name}={amount!r} is not a count.", hint="Give 0, 1, 2, …")
    return amount


def parse_number(text: str) -> float | None:
    """Parse *text* as a finite number; return None if it is not one.

    Unlike `float`, accept neither `nan` nor `1_000`, nor spaces, nor the digits of other scripts.
    """
    number = float(text) if _NUMBER.fullmatch(text) else math.inf
    return number if math.isfinite(number) else None
