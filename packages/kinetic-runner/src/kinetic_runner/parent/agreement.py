"""Several hosts agree on the number of an attempt: the leader claims the next free one, the others take that.

A JobSet counts its restarts, but not that Kueue suspended and resumed it. An Indexed Job replaces single hosts.
So a host never takes part twice in an attempt, and no host begins before the leader has seen the claims of all:
the claim of a leader that is gone would otherwise mislead a host that was not there yet.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from time import monotonic, time
from typing import Final

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
    refused_seconds: float = REPORT_SECONDS
    """For how long to wait on while the store rejects this host, which it accepted before."""
    now: Callable[[], float] = time
    clock: Callable[[], float] = monotonic

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
        role = _Leader(self) if self.host.leader else _Follower(self)
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
                if role.look():
                    return role.own
            except GONE:
                raise
            except REFUSED as error:
                now, accepted = self.clock(), accepted or role.own > 0
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
                self.log(f"{role.waits_for}{problem}")
            if self.pause(backoff.next()):
                self._report_stop(role.own)
                raise StoppedError("A stop was requested before all hosts were there.")
        raise AssertionError("unreachable")

    @property
    def first(self) -> int:
        """The first attempt that these restarts can have."""
        return (self.restarts or 0) + 1

    def try_to_claim(self, number: int) -> bool:
        """Claim the attempt *number* for this host; return whether the claim is this process's."""
        name = self.job.claim(number, self.host.index)
        return try_claim(self.store, self.signer, name, encode(self.claim(number)), self.pause)

    def has_claimed(self, number: int, host: int) -> bool:
        """Tell whether *host* has claimed the attempt *number*."""
        return self._read(self.job.claim(number, host)) is not None

    def has_ended(self, number: int) -> bool:
        """Tell whether a host has reported on the attempt *number* already."""
        listed = self.store.list(f"{self.job.attempts}{number}/")
        own = {self.job.host_outcome(number, host) for host in range(self.host.count)}
        return any(self._read(info.name) is not None for info in listed if info.name in own)

    def has_host_that_is_over(self, number: int) -> bool:
        """Tell whether a host succeeded before the attempt *number*, where hosts are replaced alone."""
        if self.restarts is not None:
            return False
        earlier = (
            read_host_ends(self.store, self.signer, self.job, each, self.host.count)
            for each in range(1, number)
        )
        return any(end.succeeded for ends in earlier for end in ends)

    def gather(self, number: int) -> None:
        """State that all hosts have claimed the attempt *number*."""
        statement = encode(self.claim(number))
        write_once(self.store, self.signer, self.job.gathered(number), statement)

    def latest(self, known: int) -> int:
        """Return the latest attempt that a leader of these restarts has claimed; *known* is one, or 0."""
        latest, number = known, max(known + 1, self.first)
        while (data := self._read(self.job.claim(number, 0))) is not None:
            if fields_of(data).get("restarts") == self.restarts:
                latest = number
            number += 1
        return latest

    def has_gathered(self, number: int) -> bool:
        """Tell whether the leader has seen the claims of all hosts for the attempt *number*."""
        return self._read(self.job.gathered(number)) is not None

    def _read(self, name: str) -> bytes | None:
        try:
            return read_verified(self.store, self.signer, name)
        except RecordError:
            return None  # Another process wrote it.

    def report_predecessor(self, number: int) -> None:
        """Report for the process that claimed the attempt *number* on this host, unless it did that itself.

        Kubernetes starts a pod only after the one that it replaces has ended, so that process is gone. The leader
        may wait for its report.
        """
        message = f"The pod of host {self.host.index} was replaced before it had reported."
        self._report(number, "call", message)

    def report_over(self, number: int) -> None:
        """Report that this host leaves the attempt *number*, because another one has ended it."""
        message = f"Another host ended before attempt {number} began on host {self.host.index}."
        self._report(number, "claim", message)

    def _report_stop(self, number: int) -> None:
        """Report that SIGTERM stopped this host in the attempt *number*; 0: it has claimed none."""
        if not number:
            return
        message, now = "SIGTERM came from outside before all hosts were there.", self.now()
        report = partial(self._report, number, "claim", message, stopped_at=now, finished_at=now)
        with suppress(KineticError, OSError):
            retry(report, seconds=_STOP_SECONDS, pause=WAIT)

    def _report(self, number: int, phase: Phase, message: str, **times: float) -> None:
        outcome = HostOutcome(
            job_id=self.job.job_id,
            attempt=number,
            host=self.host.index,
            succeeded=False,
            reason="terminated",
            phase=phase,
            exit_code=EXIT_TERMINATED,
            message=message,
            **times,  # type: ignore[arg-type]
        )
        name = self.job.host_outcome(number, self.host.index)
        write_once(self.store, self.signer, name, encode(outcome))


class _Leader:
    """Claims the next free attempt, and lets the other hosts begin once all of them have claimed it."""

    def __init__(self, agreement: Agreement) -> None:
        self.agreement = agreement
        self.own = 0
        self._candidate = agreement.first
        self._there = 1
        self._host_is_over: bool | None = None

    @property
    def waits_for(self) -> str:
        if not self.own:
            return "The leader waits to claim an attempt."
        hosts = self.agreement.host.count
        return f"Waiting for host {self._there}: attempt {self.own} begins once all {hosts} hosts are there."

    def look(self) -> bool:
        """Go on as far as possible; return whether all hosts have claimed `own`."""
        agreement = self.agreement
        while not self.own:
            if agreement.try_to_claim(self._candidate):
                self.own, self._there = self._candidate, 1
                self._host_is_over = None
            self._candidate += 1
        if self._host_is_over is None:
            self._host_is_over = agreement.has_host_that_is_over(self.own)
        if self._host_is_over:
            return True  # It will not come, and the leader then ends the job.
        while self._there < agreement.host.count:
            if not agreement.has_claimed(self.own, self._there):
                return False
            self._there += 1
        if agreement.has_ended(self.own):
            # A host that claimed it is gone, and its successor waits for another attempt.
            agreement.report_over(self.own)
            self.own = 0
            return False
        agreement.gather(self.own)
        return True


class _Follower:
    """Claims the latest attempt that the leader has claimed, until all hosts are there."""

    def __init__(self, agreement: Agreement) -> None:
        self.agreement = agreement
        self.own = 0
        self._latest = 0

    @property
    def waits_for(self) -> str:
        return f"Host {self.agreement.host.index} waits for the other hosts to begin an attempt."

    def look(self) -> bool:
        """Go on as far as possible; return whether all hosts have claimed `own`."""
        agreement = self.agreement
        found = agreement.latest(self._latest)
        if found > self._latest:
            if agreement.try_to_claim(found):
                self.own = found
            else:
                self.own = 0
                agreement.report_predecessor(found)
            self._latest = found  # Only now: what the store did not take is tried again.
        return bool(self.own) and agreement.has_gathered(self.own)
