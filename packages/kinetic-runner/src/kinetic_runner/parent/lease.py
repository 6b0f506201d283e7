"""Renew the lease of a local job in a bucket, if the supervisor died while the runner still reports."""

from __future__ import annotations

import select
from collections.abc import Callable

from kinetic_payload.errors import KineticError
from kinetic_payload.layout import LEASE_SECONDS, JobObjects
from kinetic_payload.records.encode import encode, fields_of
from kinetic_payload.records.lease import Lease
from kinetic_payload.records.signing import Signer
from kinetic_payload.records.storage import read_verified
from kinetic_payload.stores.store import Store
from kinetic_runner.store_retries import WAIT


def renew_without_supervisor(
    store: Store,
    job: JobObjects,
    lifeline: int,
    *,
    signer: Signer,
    holder: str,
    give_up: Callable[[], object],
    pause: Callable[[float], object] = WAIT,
) -> None:
    """Wait until *lifeline* ends; from then on renew the lease until the job has an outcome.

    The lease shows other machines that the job is running. Call *give_up* if a client wrote an outcome that
    *signer* verifies, or removed the job: a report is not needed any more.
    """
    _wait_for_end(lifeline)
    lease = encode(Lease(job_id=job.job_id, holder=holder, seconds=LEASE_SECONDS))
    while True:
        pause(LEASE_SECONDS / 3)  # The supervisor's last lease is valid for longer than this.
        try:
            outcome = read_verified(store, signer, job.outcome)
            if outcome is not None:
                if fields_of(outcome).get("written_by") == "client":
                    give_up()
                return
            if store.stat(job.handle) is None:
                give_up()
                return
            store.write(job.lease, lease)
        except KineticError:
            continue  # The store cannot be reached; try again next time.


def _wait_for_end(fd: int) -> None:
    # Do not read: `watch` reads the supervisor's messages.
    poll = select.poll()
    poll.register(fd, 0)
    while not any(event for _, event in poll.poll()):
        pass
