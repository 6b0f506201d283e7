"""Outages of a store, through which a job that lives on this machine is waited for."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from math import inf
from typing import Final

from kinetic.errors import StoreUnavailableError
from kinetic.services import LOOK, Services
from kinetic.waiting import sleep
from kinetic_payload.outages import OutageLimit, limited
from kinetic_payload.records import JobRecord

_PAUSE: Final = 0.25
"""Seconds between two looks; each of them waits for the store itself."""


class Outage:
    """Catches that the store does not answer, for as long as the job lives on this machine.

    Each block waits for the store only briefly then: the deadline, a stop and the job's death count.
    """

    def __init__(self, record: JobRecord, services: Services, warn: Callable[[str], None]) -> None:
        self.error: StoreUnavailableError | None = None
        """What the latest block met."""
        self._record = record
        self._services = services
        self._warn = warn
        self._limit: ExitStack | None = None

    def __enter__(self) -> None:
        if self._services.backend.lives_here(self._record):
            self._limit = ExitStack()
            self._limit.enter_context(limited(OutageLimit(LOOK, quiet=inf)))

    def __exit__(self, kind: object, error: BaseException | None, *rest: object) -> bool:
        before, limit = self.error, self._limit
        self.error = self._limit = None
        if limit is not None:
            limit.close()
        if not isinstance(error, StoreUnavailableError) or limit is None:
            return False
        self.error = error
        if before is None:
            self._warn(
                f"{error.message} Job {self._record.job_id} runs on this machine, so the wait for it "
                "goes on."
            )
        return True

    def pause(self) -> None:
        """Rest before the next look."""
        sleep(_PAUSE)
