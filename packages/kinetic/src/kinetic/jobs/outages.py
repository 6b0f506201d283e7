"""Outages and refusals through which a job is waited for: of its backend, and here of its store."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from math import inf
from typing import Final

from kinetic.errors import (
    CredentialsError,
    KineticError,
    StoreError,
    StorePermissionError,
    UnavailableError,
)
from kinetic.jobs.services import LOOK, Services
from kinetic.waiting import Backoff, Deadline, sleep
from kinetic_payload.records.job import JobRecord
from kinetic_payload.stores.outages import OutageLimit, limited

_PASSING: Final = (UnavailableError, CredentialsError, StorePermissionError)
"""What may pass while the job goes on: tokens are renewed, and permissions come back."""


def pauses() -> Backoff:
    """Return the pauses between two tries: a refusal, or a certificate that fails, comes at once."""
    return Backoff(0.25, 2.0)


class Outage:
    """Catches that the backend is not reached; that the store is not, or refuses, while the job lives here.

    For a job that lives on this machine each block waits only briefly: the deadline, a stop and the
    job's death count.
    """

    def __init__(self, record: JobRecord, services: Services, warn: Callable[[str], None]) -> None:
        self.error: KineticError | None = None
        """What the latest block met."""
        self._record = record
        self._services = services
        self._warn = warn
        self._limit: ExitStack | None = None
        self._pauses = pauses()
        self._told: set[str] = set()

    def __enter__(self) -> None:
        if self._services.backend.lives_here(self._record):
            self._limit = ExitStack()
            self._limit.enter_context(limited(OutageLimit(LOOK, quiet=inf)))

    def __exit__(self, kind: object, error: BaseException | None, *rest: object) -> bool:
        before, limit = self.error, self._limit
        self.error = self._limit = None
        if limit is not None:
            limit.close()
        if error is None:
            self._pauses.reset()
        if not isinstance(error, _PASSING) or (limit is None and isinstance(error, StoreError)):
            return False
        self.error = error
        if before is None:
            job = f"job {self._record.job_id}"
            on = f"The wait for {job} goes on."
            if limit is not None:
                on = f"J{job[1:]} runs on this machine, so the wait for it goes on."
            if error.message not in self._told:
                self._told.add(error.message)
                self._warn(f"{error.message} {on}")
        return True

    def pause(self, deadline: Deadline) -> None:
        """Rest before the next look, not beyond *deadline*."""
        sleep(deadline.at_most(self._pauses.next()))
