"""Decide whether another attempt follows one that has ended."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kinetic_payload.layout import EXIT_NOT_PREPARED
from kinetic_payload.records.attempt_result import HostEnd, Result


@dataclass(frozen=True)
class Tally:
    """How many attempts of a job failed, and how many were disrupted."""

    failures: int = 0
    disruptions: int = 0


def tally_of(results: Iterable[Result]) -> Tally:
    """Count failures and disruptions among the *results* of attempts."""
    found = list(results)
    return Tally(failures=found.count("failed"), disruptions=found.count("disrupted"))


def another_attempt(
    chosen: HostEnd, earlier: Tally, *, retries: int | None, preemptions: int | None
) -> bool:
    """Decide whether another attempt follows the one that the host *chosen* decided.

    *earlier* counts the attempts before it. Only a failure consumes *retries*, and only a disruption consumes
    *preemptions*; None means no limit.
    An attempt that could not be prepared is not repeated.
    """
    if chosen.succeeded or chosen.exit_code == EXIT_NOT_PREPARED:
        return False
    if chosen.reason == "terminated":
        return preemptions is None or earlier.disruptions < preemptions
    return retries is None or earlier.failures < retries
