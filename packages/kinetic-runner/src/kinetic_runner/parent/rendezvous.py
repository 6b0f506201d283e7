"""Several hosts agree on the number of an attempt: the leader claims the next free one, the others take that.

A JobSet counts its restarts, but not that Kueue suspended and resumed it. An Indexed Job replaces single hosts.
So a host never takes part twice in an attempt, and no host begins before the leader has seen the claims of all:
the claim of a leader that is gone would otherwise mislead a host that was not there yet.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from time import monotonic, time
from typing import Any, Final

from kinetic_payload.backoff import Backoff
from kinetic_payload.errors import IntegrityError, KineticError, RecordError, StoreError
from kinetic_payload.layout import EXIT_TERMINATED, REPORT_SECONDS, JobObjects
from kinetic_payload.records.claim import Claim
from kinetic_payload.records.encode import encode, fields_of
from kinetic_payload.records.host_outcome import HostOutcome, Phase
from kinetic_payload.records.signing import Signer
from kinetic_payload.records.storage import read_verified, write_once
from kinetic_payload.records.stored_outcomes import read_host_ends
from kinetic_payload.stores.store import Store
from kinetic_runner.hosts import Host
from kinetic_runner.parent.claims import refuse_if_finished, try_claim
from kinetic_runner.store_retries import GONE, REFUSED, WAIT, retry, retry_notice

_SHORTEST: Final = 0.1
_LONGEST: Final = 2.0
"""Seconds between two looks of a host that waits for others."""
_FIRST_NOTICE: Final = 8
"""Looks, about nine seconds, after which the log says what a host waits for; then twice as many each time."""
_STOP_SECONDS: Final = 10.0
"""Seconds for which a stopped host tries to report; its grace is hardly ever shorter."""


class StoppedError(KineticError):
    """SIGTERM came while this host waited for the others."""


@dataclass(kw_only=True)
class _Waiting:
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
    refused_seconds: float = REPORT_SECONDS
    """For how long to wait on while the store rejects this host, which it accepted before."""
    own: int = field(default=0, init=False)
    """The attempt that this host has claimed; 0: none."""

    @property
    def waits_for(self) -> str:
        """What this host waits for, as a sentence."""
        raise NotImplementedError

    def look(self) -> bool:
        """Go on as far as possible; return whether all hosts have claimed `own`."""
        raise NotImplementedError

    def reach(self) -> int:
        """Claim the attempt that all hosts run, and wait until they have claimed it; return its number.

        While the store does not respond, it is asked again. It is also asked again if it rejects credentials that
        it accepted before: they may be restored, and if this host gave up, the job would end. A host that is
        stopped reports that for the attempt that it has claimed.

        Raises:
            AlreadyFinishedError: The job has ended.
            StoppedError: A stop was requested.
            StoreError: The store rejects this host from the beginning, or for too long.
        """
        accepted, refused_at = False, None
        warned: set[str] = set()

        def warn_once(text: str) -> None:
            if text not in warned:
                warned.add(text)
                self.log(text)

        backoff = Backoff(_SHORTEST, _LONGEST, jitter=0)
        for looks in count(1):
            try:
                refuse_if_finished(self.store, self.job, self.signer, warn=warn_once)
                if self.look():
                    return self.own
            except GONE:
                raise
            except REFUSED as error:
                now, accepted = monotonic(), accepted or self.own > 0
                if refused_at is None and accepted:
                    self.log(f"{error} {retry_notice(self.refused_seconds)}")
                refused_at = now if refused_at is None else refused_at
                if not accepted or now - refused_at >= self.refused_seconds:
                    raise
                problem = f" The store rejects this host: {error}"
            except (StoreError, IntegrityError, OSError) as error:
                problem = f" The store does not respond: {error}"
            else:
                problem, accepted, refused_at = "", True, None
            if looks >= _FIRST_NOTICE and looks & (looks - 1) == 0:
                self.log(f"{self.waits_for}{problem}")
            if self.pause(backoff.next()):
                break
        if self.own:
            message, now = "SIGTERM came from outside before all hosts were there.", time()
            ended = self._ended(self.own, "claim", message, stopped_at=now, finished_at=now)
            with suppress(KineticError, OSError):
                retry(lambda: self._report(ended), seconds=_STOP_SECONDS, pause=WAIT)
        raise StoppedError("A stop was requested before all hosts were there.")

    @property
    def _first(self) -> int:
        """The first attempt that these restarts can have."""
        return (self.restarts or 0) + 1

    def _try_to_claim(self, number: int) -> bool:
        """Claim the attempt *number* for this host; return whether the claim is this process's."""
        name = self.job.claim(number, self.host.index)
        return try_claim(self.store, self.signer, name, encode(self.claim(number)), self.pause)

    def _read(self, name: str) -> bytes | None:
        try:
            return read_verified(self.store, self.signer, name)
        except RecordError:
            return None  # Another process wrote it.

    def _ended(self, number: int, phase: Phase, message: str, **times: Any) -> HostOutcome:
        """Return how this host ended in the attempt *number* without having begun it."""
        return HostOutcome(
            job_id=self.job.job_id,
            attempt=number,
            host=self.host.index,
            succeeded=False,
            reason="terminated",
            phase=phase,
            exit_code=EXIT_TERMINATED,
            message=message,
            **times,
        )

    def _report(self, outcome: HostOutcome) -> None:
        name = self.job.host_outcome(outcome.attempt, self.host.index)
        write_once(self.store, self.signer, name, encode(outcome))


class Leader(_Waiting):
    """Claims the next free attempt, and lets the other hosts begin once all of them have claimed it."""

    _tried = 0
    """The last attempt that it has tried to claim."""
    _there = 0
    """How many hosts are known to have claimed `own`; 0: earlier attempts are not read yet."""

    @property
    def waits_for(self) -> str:
        """What the leader waits for, as a sentence."""
        if not self.own:
            return "The leader waits to claim an attempt."
        hosts = self.host.count
        return f"Waiting for host {self._there or 1}: attempt {self.own} begins once all {hosts} hosts are there."

    def look(self) -> bool:
        """Go on as far as possible; return whether all hosts have claimed `own`."""
        while not self.own:
            candidate = max(self._tried + 1, self._first)
            if self._try_to_claim(candidate):
                self.own, self._there = candidate, 0
            self._tried = candidate
        if not self._there and self.restarts is None:
            # Hosts are replaced alone: one that succeeded in an earlier attempt will not come, and the leader ends the job.
            earlier = (
                read_host_ends(self.store, self.signer, self.job, each, self.host.count)
                for each in range(1, self.own)
            )
            if any(end.succeeded for ends in earlier for end in ends):
                return True
        self._there = max(self._there, 1)
        while self._there < self.host.count:
            if self._read(self.job.claim(self.own, self._there)) is None:
                return False
            self._there += 1
        listed = self.store.list(f"{self.job.attempts}{self.own}/")
        names = {self.job.host_outcome(self.own, host) for host in range(self.host.count)}
        if any(self._read(info.name) is not None for info in listed if info.name in names):
            # A host that claimed it is gone, and its successor waits for another attempt.
            message = (
                f"Another host ended before attempt {self.own} began on host {self.host.index}."
            )
            self._report(self._ended(self.own, "claim", message))
            self.own = 0
            return False
        statement = encode(self.claim(self.own))
        write_once(self.store, self.signer, self.job.gathered(self.own), statement)
        return True


class Follower(_Waiting):
    """Claims the latest attempt that the leader has claimed, until all hosts are there."""

    _latest = 0
    """The latest attempt of these restarts that the leader is known to have claimed."""

    @property
    def waits_for(self) -> str:
        """What this host waits for, as a sentence."""
        return f"Host {self.host.index} waits for the other hosts to begin an attempt."

    def look(self) -> bool:
        """Go on as far as possible; return whether all hosts have claimed `own`."""
        found, number = self._latest, max(self._latest + 1, self._first)
        while (data := self._read(self.job.claim(number, 0))) is not None:
            if fields_of(data).get("restarts") == self.restarts:
                found = number
            number += 1
        if found > self._latest:
            self.own = found if self._try_to_claim(found) else 0
            if not self.own:
                # Kubernetes starts a pod only after the one that it replaces has ended, so the process that
                # claimed this attempt is gone. The leader may wait for its report.
                message = f"The pod of host {self.host.index} was replaced before it had reported."
                self._report(self._ended(found, "call", message))
            self._latest = found  # Only now: what the store did not take is tried again.
        return bool(self.own) and self._read(self.job.gathered(self.own)) is not None
