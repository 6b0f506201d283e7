"""Claims: on each host one process runs an attempt, and no process runs a finished job."""

from __future__ import annotations

from collections.abc import Callable

from kinetic_payload.errors import KineticError, RecordError
from kinetic_payload.layout import JobObjects
from kinetic_payload.records.claim import Claim
from kinetic_payload.records.encode import encode, fields_of
from kinetic_payload.records.signing import UNSIGNED, Signer
from kinetic_payload.records.storage import read_verified, write_once
from kinetic_payload.stores.store import Store
from kinetic_runner.hosts import Host
from kinetic_runner.parent.report import print_line
from kinetic_runner.store_retries import REFUSED, retry


class AlreadyClaimedError(KineticError):
    """Another process runs, or ran, this attempt on this host."""


class AlreadyFinishedError(KineticError):
    """The job has a final outcome, so its function must not run again."""

    succeeded: bool = False


def claim_attempt(
    store: Store,
    job: JobObjects,
    host: Host,
    *,
    attempt: int | None,
    claim_of: Callable[[int], Claim],
    pause: Callable[[float], bool],
    signer: Signer = UNSIGNED,
) -> int:
    """Claim *attempt*, or the next free one, for this host; return its number.

    Claims and outcomes that *signer* does not verify are ignored: the job did not write them.

    Raises:
        AlreadyFinishedError: The job has ended.
        AlreadyClaimedError: Another process has claimed *attempt*.
    """
    refuse_if_finished(store, job, signer)
    number = attempt if attempt is not None else 1
    # The claims are not listed: thousands may be forged, or one with the greatest possible number.
    while not try_claim(
        store, signer, job.claim(number, host.index), encode(claim_of(number)), pause
    ):
        if attempt is not None:
            raise AlreadyClaimedError(
                f"Attempt {attempt} of {job.job_id} on host {host.index} belongs to another process.",
                hint="Start another attempt, or omit the number to take the next free one.",
            )
        number += 1
        while read_verified(store, signer, job.claim(number, host.index)) is not None:
            number += 1  # To read a claim takes fewer requests than to try to write one.
    return number


def try_claim(
    store: Store, signer: Signer, name: str, claim: bytes, pause: Callable[[float], bool]
) -> bool:
    """Create the claim *name* with the content *claim*; return whether it is this process's."""
    written = retry(
        lambda: write_once(store, signer, name, claim),
        seconds=20,
        pause=pause,
        final=REFUSED,
    )
    # A retry after a lost response finds the claim of the first try.
    return written == signer.sign(claim, name)


def refuse_if_finished(
    store: Store, job: JobObjects, signer: Signer, *, warn: Callable[[str], object] = print_line
) -> None:
    """Make sure that the job has no final outcome; *warn* of one that the job did not write.

    Raises:
        AlreadyFinishedError: It has ended.
    """
    if store.stat(job.outcome) is None:
        return
    try:
        written = read_verified(store, signer, job.outcome)
    except RecordError:
        written = b""
    if written is None:
        warn(f"{job.outcome} was not written by the job: ignored.")
        return
    status = fields_of(written).get("status")
    known = status if status in ("succeeded", "failed", "cancelled") else "with an unknown status"
    error = AlreadyFinishedError(f"{job.job_id} has ended already: {known}.")
    error.succeeded = status == "succeeded"
    raise error
