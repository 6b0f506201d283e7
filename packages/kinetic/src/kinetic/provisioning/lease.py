"""A lease in the builds bucket: one process at a time makes or removes a cluster."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import cached_property
from typing import Final

from kinetic.errors import ProvisioningBusyError
from kinetic.jobs.record import submitter
from kinetic_payload.errors import (
    KineticError,
    ObjectNotFoundError,
    PreconditionFailedError,
    RecordError,
)
from kinetic_payload.limits import read_record
from kinetic_payload.records.claim import Lease
from kinetic_payload.records.encode import encode, fields_of
from kinetic_payload.stores import open_store
from kinetic_payload.stores.store import ABSENT, Store, parse_location

NAME: Final = "provisioning/lease.json"
SECONDS: Final = 60.0
"""How long a lease is valid after it was written."""


class ProvisioningLease:
    """The lease of a cluster; whoever holds it renews it every few seconds."""

    def __init__(self, bucket: str, what: str) -> None:
        """Take the builds bucket, which may not exist yet, and the command that holds the lease."""
        self._bucket = bucket
        self._what = what
        self._generation: int | None = None
        self._renewed = 0.0

    @cached_property
    def _store(self) -> Store:
        return open_store(parse_location(f"gs://{self._bucket}"))

    def acquire(self) -> None:
        """Take the lease; again, it has no effect.

        Raises:
            ProvisioningBusyError: Another process holds it.
        """
        if self._generation is not None:
            return
        generation = ABSENT
        found = self._store.stat(NAME)
        if found is not None:
            left = SECONDS - (self._store.now() - found.updated)
            if left > 0:
                raise self._busy(left)
            generation = found.generation
        self._write(generation)

    def renew(self) -> None:
        """Renew the lease, if it is held and was not renewed for a while.

        Raises:
            ProvisioningBusyError: Another process has taken it, because this one was asleep for too long.
        """
        if self._generation is not None and self._store.now() - self._renewed > SECONDS / 4:
            self._write(self._generation)

    def release(self) -> None:
        """Give the lease up, if it is held; if that fails, it expires."""
        held, self._generation = self._generation, None
        if held is not None:
            with suppress(KineticError):
                self._store.delete(NAME, if_generation=held)

    def forget(self) -> None:
        """Renew the lease no more: its bucket is deleted."""
        self._generation = None

    def _write(self, generation: int) -> None:
        holder = f"{self._what} of {submitter()}, process {os.getpid()}"
        data = encode(Lease(job_id=self._what, holder=holder, seconds=SECONDS))
        try:
            self._generation = self._store.write(NAME, data, if_generation=generation).generation
        except PreconditionFailedError as error:
            self._generation = None
            raise self._busy(SECONDS) from error
        self._renewed = self._store.now()

    def _busy(self, seconds: float) -> ProvisioningBusyError:
        holder = "another process"
        with suppress(ObjectNotFoundError, RecordError):
            holder = str(fields_of(read_record(self._store, NAME)).get("holder", holder))
        return ProvisioningBusyError(
            f"This cluster is being changed by {holder}.",
            hint=f"Wait until that ends. If it was killed, try again in {seconds:.0f} s.",
        )
