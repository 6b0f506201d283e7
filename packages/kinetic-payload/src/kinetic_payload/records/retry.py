"""Decide whether another attempt follows one that has ended."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kinetic_payload.frozen import frozen
from kinetic_payload.layout import EXIT_BAD_NODE, EXIT_NOT_PREPARED
from kinetic_payload.records.attempt_result import HostEnd, Result

MOST_BAD_NODES: Final = 3
"""How many attempts of a job that met a bad node are followed by another one."""
MOST_LOST: Final = 3
"""How many workers of a batch may be lost with one input, without a report, before it fails."""


def most_lost(inputs: int) -> int:
    """Return how many times a worker of so many *inputs* may be lost without a disruption.

    Each input may explain `MOST_LOST` of them.
    """
    return 10 + MOST_LOST * inputs


@frozen()
class Tally:
    """How many attempts of a job failed, how many were disrupted, and how many met a bad node."""

    failures: int = 0
    disruptions: int = 0
    bad_nodes: int = 0


def tally_of(results: Iterable[Result]) -> Tally:
    """Count failures, disruptions and bad nodes among the *results* of attempts."""
    found = list(results)
    return Tally(found.count("failed"), found.count("disrupted"), found.count("bad-node"))


def another_attempt(
    chosen: HostEnd, earlier: Tally, *, retries: int | None, preemptions: int | None
) -> bool:
    """Decide whether another attempt follows the one that the host *chosen* decided.

    *earlier* counts the attempts before it. Only a failure consumes *retries*, and only a disruption consumes
    *preemptions*; None means no limit. A bad node consumes neither; `MOST_BAD_NODES` limits them.
    An attempt that could not be prepared is not repeated.
    """
    if chosen.succeeded or chosen.exit_code == EXIT_NOT_PREPARED:
        return False
    if chosen.exit_code == EXIT_BAD_NODE:
        return earlier.bad_nodes < MOST_BAD_NODES
    if chosen.reason == "terminated":
        return preemptions is None or earlier.disruptions < preemptions
    return retries is None or earlier.failures < retries
