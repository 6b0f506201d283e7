"""Amounts as people and Kubernetes write them: `16Gi` of memory, `500m` of a processor, seconds."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from typing import Final

from kinetic.errors import InvalidRequestError

_MEMORY: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(k|Ki|M|Mi|G|Gi|T|Ti)?")
_FACTOR: Final = {
    None: 1,
    "k": 1000,
    "Ki": 1024,
    "M": 1000**2,
    "Mi": 1024**2,
    "G": 1000**3,
    "Gi": 1024**3,
    "T": 1000**4,
    "Ti": 1024**4,
}


def parse_memory(name: str, amount: object) -> int | None:
    """Return *amount*, the argument *name*, in bytes.

    Raises:
        InvalidRequestError: It is no amount of memory.
    """
    if amount is None:
        return None
    found = None
    if isinstance(amount, int) and not isinstance(amount, bool):
        found = amount
    elif isinstance(amount, str) and (match := _MEMORY.fullmatch(amount.strip())):
        found = math.ceil(float(match[1]) * _FACTOR[match[2]])
    if found is None or found <= 0:
        raise InvalidRequestError(
            f"{name}={amount!r} is no amount of memory.",
            hint="Give bytes as a number, or a text such as '16Gi' or '500M'.",
        )
    if found < _FACTOR["Mi"]:
        raise InvalidRequestError(
            f"{name}={amount!r} is {found} bytes, in which nothing can run.",
            hint=f"A number is taken for bytes; with a unit: {name}='16Gi'.",
        )
    return found


def parse_cpu(amount: object) -> float | None:
    """Return the argument `cpu` in cores.

    Raises:
        InvalidRequestError: It is no number of cores.
    """
    if amount is None:
        return None
    found = None
    if isinstance(amount, int | float) and not isinstance(amount, bool):
        found = float(amount)
    elif isinstance(amount, str) and (
        match := re.fullmatch(r"(\d+(?:\.\d+)?)(m?)", amount.strip())
    ):
        found = float(match[1]) / (1000 if match[2] else 1)
    if found is None or not 0 < found < math.inf:
        raise InvalidRequestError(
            f"cpu={amount!r} is no number of cores.",
            hint="Give a number such as 4 or 0.5, or a text such as '500m'.",
        )
    return found


def parse_timeout(amount: object) -> float | None:
    """Return the argument `timeout` in seconds.

    Raises:
        InvalidRequestError: It is no length of time.
    """
    if amount is None:
        return None
    seconds = amount.total_seconds() if isinstance(amount, timedelta) else amount
    if (
        isinstance(seconds, bool)
        or not isinstance(seconds, int | float)
        or not 0 < seconds < math.inf
    ):
        raise InvalidRequestError(
            f"timeout={amount!r} is no length of time.",
            hint="Give seconds (3600) or a timedelta, greater than zero; None means no limit.",
        )
    return float(seconds)


def parse_wait(amount: object) -> float | None:
    """Return how long to wait, the argument `timeout` of `result`, in seconds; None is for ever.

    Raises:
        InvalidRequestError: It is no length of time.
    """
    seconds = amount.total_seconds() if isinstance(amount, timedelta) else amount
    if seconds is None or seconds == math.inf:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or math.isnan(seconds):
        raise InvalidRequestError(
            f"timeout={amount!r} is no length of time.",
            hint="Give seconds or a timedelta; None waits for ever.",
        )
    return max(0.0, float(seconds))


def parse_count(name: str, amount: object) -> int:
    """Return *amount*, the argument *name*, as a number that is not negative.

    Raises:
        InvalidRequestError: It is none.
    """
    if isinstance(amount, bool) or not isinstance(amount, int) or amount < 0:
        raise InvalidRequestError(
            f"{name}={amount!r} is not a number of times.", hint="Give 0, 1, 2, …"
        )
    return amount
