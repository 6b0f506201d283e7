"""Outages of a store, and refusals, through which a job that lives on this machine is waited for."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from math import inf
from typing import Final

from kinetic.errors import (
    CredentialsError,
    StoreError,
    StorePermissionError,
    StoreUnavailableError,
)
from kinetic.services import LOOK, Services
from kinetic.waiting import Backoff, Deadline, sleep
from kinetic_payload.outages import OutageLimit, limited
from kinetic_payload.records import JobRecord

_PASSING: Final = (StoreUnavailableError, CredentialsError, StorePermissionError)
"""What may pass while the job goes on: tokens are renewed, and permissions come back."""


def pauses() -> Backoff:
    """Return the pauses between two tries: a refusal, or a certificate that fails, comes at once."""
    return Backoff(0.25, 2.0)


class Outage:
    """Catches that the store does not answer, or refuses, for as long as the job lives on this machine.

    Each block waits for the store only briefly then: the deadline, a stop and the job's death count.
    """

    def __init__(self, record: JobRecord, services: Services, warn: Callable[[str], None]) -> None:
        self.error: StoreError | None = None
        """What the latest block met."""
        self._record = record
        self._services = services
        self._warn = warn
        self._limit: ExitStack | None = None
        self._pauses = pauses()

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
        if not isinstance(error, _PASSING) or limit is None:
            return False
        self.error = error
        if before is None:
            self._warn(
                f"{error.message} Job {self._record.job_id} runs on this machine, so the wait for it "
                "goes on."
            )
        return True

    def pause(self, deadline: Deadline) -> None:
        """Rest before the next look, not beyond *deadline*."""
        sleep(deadline.at_most(self._pauses.next()))
