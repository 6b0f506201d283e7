"""Wait for the reports of the other hosts of an attempt."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic

from kinetic_payload.errors import KineticError, RecordError
from kinetic_payload.layout import EXIT_FUNCTION_FAILED, JobObjects
from kinetic_payload.records.attempt_result import (
    HostEnd,
    Result,
    deciding,
    may_have_lost_peer,
    parse_host_end,
    result_of,
)
from kinetic_payload.records.signing import Signer
from kinetic_payload.records.storage import read_verified
from kinetic_payload.stores.store import Store
from kinetic_runner.hosts import FIRST_NOTICE, Host, names_of


@dataclass(kw_only=True)
class HostEnds:
    """How an attempt's hosts ended, as far as they have reported. *by_host* begins with this host's own end."""

    store: Store
    job: JobObjects
    host: Host
    attempt: int
    signer: Signer
    by_host: dict[int, HostEnd]
    pause: Callable[[float], bool]
    """Waits; returns True once a stop is requested, which ends `gather`."""
    clock: Callable[[], float] = monotonic
    log: Callable[[str], object] = field(default=lambda _: None)
    """Adds a line of Kinetic's own to the log."""

    @property
    def missing(self) -> list[int]:
        """The hosts that have not reported."""
        return [host for host in range(self.host.count) if host not in self.by_host]

    @property
    def result(self) -> Result:
        """The result of the attempt, as far as hosts have reported."""
        return result_of(list(self.by_host.values()), self.host.count)

    @property
    def chosen(self) -> HostEnd:
        """The end that decides the result, among the known ends."""
        return deciding(list(self.by_host.values()))

    def gather(
        self, seconds: float, *, until_failure: bool = False, first_pause: float = 0.01
    ) -> bool:
        """Collect reports for at most *seconds*; return whether a stop was requested meanwhile.

        With *until_failure*, return as soon as a host reports a failure of its own. A report that the job's
        key does not verify is ignored: its host replaces it.
        """
        began = self.clock()
        delay, next_notice = first_pause, FIRST_NOTICE

        def has_failed() -> bool:
            ends = self.by_host.values()
            return any(not end.succeeded and not may_have_lost_peer(end) for end in ends)

        while self.missing and not (until_failure and has_failed()):
            self._read_new()
            waited = self.clock() - began
            if not self.missing or waited >= seconds:
                break
            if waited >= next_notice:
                next_notice = 2 * waited
                self.log(
                    f"Still waiting for {names_of(self.missing)} to end, after {waited:.0f} s."
                )
            if self.pause(min(delay, seconds - waited)):
                return True
            delay = min(delay * 1.5, max(1.0, first_pause))
        return False

    def give_up(self, seconds: float) -> None:
        """Count hosts that have not reported within *seconds* as failed."""
        for host in self.missing:
            message = f"Host {host} did not report within {seconds:g} s."
            self.by_host[host] = _unreported(host, message)

    def _read_new(self) -> None:
        # The store may be unreachable for a moment, or the job was removed.
        there: set[str] = set()
        with suppress(KineticError):
            there |= {info.name for info in self.store.list(f"{self.job.attempts}{self.attempt}/")}
        for host in self.missing:
            name = self.job.host_outcome(self.attempt, host)
            try:
                data = read_verified(self.store, self.signer, name) if name in there else None
                if data is not None:
                    self.by_host[host] = parse_host_end(host, data)
            except RecordError:
                self.by_host[host] = unreadable(host)
            except KineticError:
                continue


def unreadable(host: int) -> HostEnd:
    """Return the end of a host whose report cannot be read."""
    return _unreported(host, f"The report of host {host} is not valid: the job did not write it.")


def _unreported(host: int, message: str) -> HostEnd:
    return HostEnd(host, False, "unreported", EXIT_FUNCTION_FAILED, message=message)
