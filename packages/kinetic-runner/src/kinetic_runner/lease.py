"""The lease of a local job in a bucket, renewed by a runner whose supervisor died while it reports."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable
from functools import partial

from kinetic_payload.errors import KineticError
from kinetic_payload.layout import LEASE_SECONDS, JobObjects
from kinetic_payload.records import Lease, encode, fields_of
from kinetic_payload.store import Store
from kinetic_runner.persistence import WAIT


def start_renewing(
    store: Store, job: JobObjects, lifeline: int, *, holder: str, give_up: Callable[[], object]
) -> None:
    """Do what `renew_without_supervisor` does in a thread, which ends with this process."""
    work = partial(renew_without_supervisor, store, job, lifeline, holder=holder, give_up=give_up)
    threading.Thread(target=work, name="lease", daemon=True).start()


def renew_without_supervisor(
    store: Store,
    job: JobObjects,
    lifeline: int,
    *,
    holder: str,
    give_up: Callable[[], object],
    pause: Callable[[float], object] = WAIT,
) -> None:
    """Wait until *lifeline* ends; from then on renew the lease until the job has an outcome.

    Until then other machines see that the job runs. Call *give_up* if a client wrote the outcome, or
    removed the job: nobody wants a report any more.
    """
    _wait_for_end(lifeline)
    lease = encode(Lease(job_id=job.job_id, holder=holder, seconds=LEASE_SECONDS))
    while True:
        pause(LEASE_SECONDS / 3)  # The supervisor's last one holds for longer.
        try:
            if store.stat(job.outcome) is not None:
                written_by = fields_of(store.read(job.outcome)).get("written_by")
                if written_by == "client":
                    give_up()
                return
            if store.stat(job.handle) is None:
                give_up()
                return
            store.write(job.lease, lease)
        except KineticError:
            continue  # The store is away; the next time may be better.


def _wait_for_end(fd: int) -> None:
    poll = select.poll()
    poll.register(fd, select.POLLIN | select.POLLHUP)
    while True:
        poll.poll()
        if not os.read(fd, 512):
            return
