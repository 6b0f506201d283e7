"""Whether what keeps a job is still there, as the store shows it: its lease, and its record's age."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from kinetic_payload.layout import LEASE_SECONDS

STARTING: Final = 60.0
"""Seconds after its record was written within which a job may be without a lease."""


_SLACK: Final = 5.0
"""Seconds by which a lease may be late: the store's clock is known to about one."""


class Standing(Enum):
    """What can be told of a job's supervisor from afar."""

    KEPT = "it was heard of lately"
    STARTING = "it may be about to start"
    LOST = "it was not heard of for longer than it should have been"
    NONE = "there is no trace of it: it never started, or all is over"


@dataclass(frozen=True)
class Signs:
    """What the store knows of a job's supervisor. Times are by the store's clock."""

    now: float
    holder: str = ""
    renewed: float | None = None
    """When the lease was written; None if there is none."""
    seconds: float = LEASE_SECONDS
    recorded: float | None = None
    """When the job's record was written, where there is no lease; None if it is gone, too."""


def standing_of(signs: Signs, *, starting: float = STARTING) -> Standing:
    """Decide what became of the supervisor."""
    if signs.renewed is not None:
        fresh = signs.now - signs.renewed <= signs.seconds + _SLACK
        return Standing.KEPT if fresh else Standing.LOST
    if signs.recorded is not None and signs.now - signs.recorded < starting:
        return Standing.STARTING
    return Standing.NONE
