"""Claims: an attempt is run by one process a host, and a finished job by none."""

from __future__ import annotations

from collections.abc import Callable

from kinetic_payload.errors import KineticError, PreconditionFailedError
from kinetic_payload.layout import JobObjects
from kinetic_payload.records import Claim, encode, fields_of
from kinetic_payload.store import ABSENT, Store
from kinetic_runner.hosts import Host
from kinetic_runner.persistence import persist


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
        persist(lambda: store.write(name, claim, if_generation=ABSENT), seconds=20, pause=pause)
    except PreconditionFailedError:
        # A second try after a lost answer meets the claim that the first one made.
        return store.read(name) == claim
    return True


def _refuse_if_finished(store: Store, job: JobObjects) -> None:
    if store.stat(job.outcome) is None:
        return
    status = fields_of(store.read(job.outcome)).get("status")
    error = AlreadyFinishedError(f"{job.job_id} has ended already: {status}.")
    error.succeeded = status == "succeeded"
    raise error


def _attempts(store: Store, job: JobObjects) -> list[int]:
    """Return the numbers that are taken, and 0."""
    names = (
        info.name.removeprefix(job.attempts).partition("/")[0] for info in store.list(job.attempts)
    )
    return [0, 0, *(int(name) for name in names if name.isascii() and name.isdigit())]


def _holder(store: Store, name: str) -> str:
    try:
        claim = fields_of(store.read(name))
        return f"process {claim['pid']} on {claim['hostname']}"
    except (KineticError, KeyError):
        return "another process"
