"""Several hosts agree on the number of an attempt: the leader claims the next free one, the others take that.

A JobSet counts its restarts, but not that Kueue suspended and resumed it. An Indexed Job replaces single hosts.
So a host never takes part twice in an attempt, and no host begins before the leader has seen the claims of all:
the claim of a leader that is gone would otherwise mislead a host that was not there yet.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from kinetic_payload.errors import KineticError, RecordError, StoreError
from kinetic_payload.layout import EXIT_TERMINATED, JobObjects, claim_of
from kinetic_payload.records.claim import Claim
from kinetic_payload.records.encode import encode, fields_of
from kinetic_payload.records.host_outcome import HostOutcome
from kinetic_payload.records.signing import Signer
from kinetic_payload.records.storage import read_verified, write_once
from kinetic_payload.stores.store import Store
from kinetic_runner.hosts import Host
from kinetic_runner.parent.claims import refuse_if_finished, try_claim
from kinetic_runner.store_retries import REFUSED

_SHORTEST: Final = 0.1
_LONGEST: Final = 2.0
"""Seconds between two looks of a host that waits for others."""


class StoppedError(KineticError):
    """SIGTERM came while this host waited for the leader."""


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """One host of several, before its attempt begins."""

    store: Store
    job: JobObjects
    host: Host
    signer: Signer
    restarts: int | None
    """How many times all hosts were restarted; None where nothing counts that."""
    claim: Callable[[int], Claim]
    """Makes this host's claim of an attempt."""
    pause: Callable[[float], bool]
    """Waits; returns True once a stop is requested."""
    log: Callable[[str], object]

    def reach(self) -> int:
        """Claim the attempt that all hosts run; return its number.

        Raises:
            AlreadyFinishedError: The job has ended.
            StoppedError: A stop was requested.
        """
        refuse_if_finished(self.store, self.job, self.signer)
        if not self.host.leader:
            return self._follow()
        number = self._first
        while not self._try(number):
            number += 1
        threading.Thread(target=self._gather, args=(number,), name="gather", daemon=True).start()
        return number

    @property
    def _first(self) -> int:
        return (self.restarts or 0) + 1

    def _try(self, number: int) -> bool:
        name = self.job.claim(number, self.host.index)
        return try_claim(self.store, self.signer, name, encode(self.claim(number)), self.pause)

    def _gather(self, number: int) -> None:
        """Let the other hosts begin once all of them have claimed the attempt *number*."""
        delay = _SHORTEST
        prefix = f"{self.job.attempts}{number}/"
        wait = partial(threading.Event().wait)
        while True:
            try:
                claims = {claim_of(info.name, self.job.job_id) for info in self.store.list(prefix)}
                if all((number, host) in claims for host in range(self.host.count)):
                    statement = encode(self.claim(number))
                    write_once(self.store, self.signer, self.job.gathered(number), statement)
                    return
            except KineticError:
                pass  # The store does not respond for a moment.
            wait(delay)
            delay = min(2 * delay, _LONGEST)

    def _follow(self) -> int:
        own, latest, looks = 0, 0, 0
        while True:
            try:
                found = self._latest(latest)
                if found > latest:
                    latest = found
                    own = latest if self._try(latest) else 0
                    if not own:
                        self._report_predecessor(latest)
                if own and self._has_gathered(own):
                    return own
                refuse_if_finished(self.store, self.job, self.signer)
            except REFUSED:
                raise
            except StoreError:
                pass  # The store does not respond for a moment.
            if looks == 8:
                self.log(f"Host {self.host.index} waits for the other hosts to begin an attempt.")
            if self.pause(min(_SHORTEST * 2 ** min(looks, 8), _LONGEST)):
                raise StoppedError("A stop was requested before all hosts were there.")
            looks += 1

    def _latest(self, known: int) -> int:
        """Return the latest attempt that a leader of these restarts has claimed; *known* is one, or 0."""
        latest, number = known, max(known + 1, self._first)
        while (data := self._read(self.job.claim(number, 0))) is not None:
            if fields_of(data).get("restarts") == self.restarts:
                latest = number
            number += 1
        return latest

    def _has_gathered(self, number: int) -> bool:
        return self._read(self.job.gathered(number)) is not None

    def _read(self, name: str) -> bytes | None:
        try:
            return read_verified(self.store, self.signer, name)
        except RecordError:
            return None  # Another process wrote it.

    def _report_predecessor(self, number: int) -> None:
        """Report for the process that claimed the attempt *number* on this host, unless it did that itself.

        Kubernetes starts a pod only after the one that it replaces has ended, so that process is gone. The leader
        may wait for its report.
        """
        name = self.job.host_outcome(number, self.host.index)
        outcome = HostOutcome(
            job_id=self.job.job_id,
            attempt=number,
            host=self.host.index,
            succeeded=False,
            reason="terminated",
            phase="call",
            exit_code=EXIT_TERMINATED,
            message=f"The pod of host {self.host.index} was replaced before it had reported.",
        )
        write_once(self.store, self.signer, name, encode(outcome))
