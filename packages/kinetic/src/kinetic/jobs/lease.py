"""The lease of a job over a bucket, renewed by its supervisor in a thread.

Other machines cannot see pids and locks; they see how old the lease is.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from kinetic_payload.errors import PreconditionFailedError
from kinetic_payload.layout import JobObjects, is_job_object
from kinetic_payload.records.encode import encode, fields_of
from kinetic_payload.records.lease import Lease
from kinetic_payload.records.signing import UNSIGNED, Signer
from kinetic_payload.records.storage import read_verified
from kinetic_payload.stores.store import Store

_FIRST: Final = 1.0
"""Seconds before the first renewal: its imports take long, and the job's start has priority."""
_REMOVAL: Final = 10.0


class LeaseRenewal:
    """Renews the lease of a job until it is closed, through failures of the store.

    *stop* is called, from the thread, when the job was ended on another machine: a client has written
    its outcome, signed with the key of *signer*, or the job was removed.
    """

    def __init__(
        self,
        open_store: Callable[[], Store],
        job_id: str,
        *,
        holder: str,
        seconds: float,
        stop: Callable[[], object],
        signer: Signer = UNSIGNED,
        first: float = _FIRST,
    ) -> None:
        self._open_store = open_store
        self._names = JobObjects(job_id)
        self._lease = encode(Lease(job_id=job_id, holder=holder, seconds=seconds))
        self._interval = seconds / 3
        self._first = min(first, self._interval)
        self._stop = stop
        self._signer = signer
        self._stopped = False
        self._removed = False
        self._closing = threading.Event()
        self._store: Store | None = None
        self._generation: int | None = None
        self._last_error = ""
        self._thread = threading.Thread(target=self._work, name="lease", daemon=True)
        self._thread.start()

    def close(self, seconds: float = _REMOVAL) -> None:
        """Remove the lease: the job has ended. If the store cannot be reached, the lease expires."""
        self._closing.set()
        self._thread.join(seconds)

    def _work(self) -> None:
        rest = self._first
        while not self._closing.wait(rest):
            began = time.monotonic()
            self._run_step(self._check_cancelled)
            self._run_step(self._renew)
            rest = max(0.0, self._interval - (time.monotonic() - began))
        if self._store is not None:
            self._run_step(self._remove)

    def _run_step(self, step: Callable[[Store], None]) -> None:
        try:
            self._store = self._store or self._open_store()
            step(self._store)
        except Exception as error:  # noqa: BLE001 - whatever it is, the next renewal may succeed
            text = f"{type(error).__name__}: {error}"
            if text != self._last_error:
                # The disk may be full; the next lease may still be written.
                with suppress(OSError):
                    sys.stderr.write(f"The lease could not be kept: {text}\n")
                    sys.stderr.flush()
            self._last_error = text
        else:
            self._last_error = ""

    def _check_cancelled(self, store: Store) -> None:
        """Call *stop* if the job was cancelled on another machine."""
        if self._stopped:
            return
        outcome = read_verified(store, self._signer, self._names.outcome)
        # If a runner wrote it, the job is about to end by itself.
        if outcome is not None and fields_of(outcome).get("written_by") == "client":
            self._stop_job()

    def _renew(self, store: Store) -> None:
        name = self._names.lease
        try:
            written = store.write(name, self._lease, if_generation=self._generation)
        except PreconditionFailedError:
            # The lease is not the one that was written last: a response was lost, or the lease was removed.
            if store.stat(self._names.handle) is None:
                self._removed = True
                self._stop_job()
                return
            written = store.write(name, self._lease)
        self._generation = written.generation

    def _stop_job(self) -> None:
        self._stopped = True
        self._stop()

    def _remove(self, store: Store) -> None:
        if self._removed:
            # The job was cleaned up while this machine was asleep: remove what was written since.
            for info in list(store.list(self._names.prefix)):
                if is_job_object(info.name, self._names.job_id):
                    store.delete(info.name)
        else:
            store.delete(self._names.lease)
