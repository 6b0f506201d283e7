"""Claims: an attempt is run by one process a host, and a finished job by none."""

from __future__ import annotations

from collections.abc import Callable

from kinetic_payload.errors import KineticError, PreconditionFailedError, RecordError
from kinetic_payload.layout import JobObjects
from kinetic_payload.limits import read_record
from kinetic_payload.records import Claim, encode, fields_of
from kinetic_payload.store import ABSENT, Store
from kinetic_runner.hosts import Host
from kinetic_runner.persistence import REFUSED, persist


class AlreadyClaimedError(KineticError):
    """Another process runs, or ran, this attempt on this host."""


class AlreadyFinishedError(KineticError):
    """The job's final outcome is there: running the function again would be wrong."""

    succeeded: bool = False


def claim_attempt(
    store: Store,
    job: JobObjects,
    host: Host,
    *,
    attempt: int | None,
    claim_of: Callable[[int], Claim],
    pause: Callable[[float], bool],
) -> int:
    """Claim *attempt*, or the next free one, for this host; return its number.

    Raises:
        AlreadyFinishedError: The job has ended.
        AlreadyClaimedError: Somebody else has *attempt*.
    """
    _refuse_if_finished(store, job)
    number = attempt if attempt is not None else 1
    while True:
        name = job.claim(number, host.index)
        if _claimed(store, name, encode(claim_of(number)), pause):
            return number
        if attempt is not None:
            holder = _holder(store, name)
            raise AlreadyClaimedError(
                f"Attempt {attempt} of {job.job_id} on host {host.index} belongs to {holder}.",
                hint="Start another attempt, or leave the number out to take the next free one.",
            )
        number = max(number, *_attempts(store, job)) + 1


def _claimed(store: Store, name: str, claim: bytes, pause: Callable[[float], bool]) -> bool:
    try:
        persist(
            lambda: store.write(name, claim, if_generation=ABSENT),
            seconds=20,
            pause=pause,
            final=REFUSED,
        )
    except PreconditionFailedError:
        # A second try after a lost answer meets the claim that the first one made.
        return read_record(store, name) == claim
    return True


def _refuse_if_finished(store: Store, job: JobObjects) -> None:
    if store.stat(job.outcome) is None:
        return
    status = fields_of(_written(store, job.outcome)).get("status")
    said = status if status in ("succeeded", "failed", "cancelled") else "in no way that is known"
    error = AlreadyFinishedError(f"{job.job_id} has ended already: {said}.")
    error.succeeded = status == "succeeded"
    raise error


def _written(store: Store, name: str) -> bytes:
    """Return the record *name*; nothing where it can be none."""
    try:
        return read_record(store, name)
    except RecordError:
        return b""


def _attempts(store: Store, job: JobObjects) -> list[int]:
    """Return the numbers that are taken, and 0."""
    from kinetic_payload.ownership import (
        number_in,
    )  # Most attempts are numbered by who starts them.

    names = (folder.removeprefix(job.attempts)[:-1] for folder in store.folders(job.attempts))
    return [0, 0, *(number for name in names if (number := number_in(name)) is not None)]


def _holder(store: Store, name: str) -> str:
    try:
        claim = fields_of(read_record(store, name))
        return f"process {claim['pid']!s:.20} on {claim['hostname']!s:.200}"
    except (KineticError, KeyError):
        return "another process"
