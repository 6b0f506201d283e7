"""Wait for the reports of the other hosts of an attempt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

from kinetic_payload.errors import KineticError, RecordError
from kinetic_payload.layout import EXIT_FUNCTION_FAILED, JobObjects
from kinetic_payload.records.attempt_result import (
    HostEnd,
    Result,
    deciding,
    parse_host_end,
    result_of,
)
from kinetic_payload.records.signing import Signer
from kinetic_payload.records.storage import read_verified
from kinetic_payload.stores.store import Store
from kinetic_runner.hosts import Host

_FIRST_NOTICE: Final = 30.0
"""Seconds of waiting after which the log names the hosts that have not reported; then after twice as many."""
_NAMED: Final = 10


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
    """Waits; True when this process was told to stop, which ends waiting."""
    clock: Callable[[], float] = monotonic
    log: Callable[[str], object] = field(default=lambda _: None)
    """Puts a line of Kinetic's own into the log."""

    @property
    def missing(self) -> list[int]:
        """The hosts that have not reported."""
        return [host for host in range(self.host.count) if host not in self.by_host]

    @property
    def result(self) -> Result:
        """What the attempt is, as far as hosts have reported."""
        return result_of(list(self.by_host.values()), self.host.count)

    @property
    def chosen(self) -> HostEnd:
        """The end that decides, among those that were reported."""
        return deciding(list(self.by_host.values()))

    def gather(
        self, seconds: float, *, until_failure: bool = False, first_pause: float = 0.01
    ) -> bool:
        """Collect reports for at most *seconds*; return whether this process was told to stop meanwhile.

        With *until_failure*, return as soon as a host reports a failure of its own. What the job's key
        does not verify is no report: its host replaces it.
        """
        began = self.clock()
        delay, next_notice = first_pause, _FIRST_NOTICE
        while self.missing and not (until_failure and self._failed()):
            self._look()
            waited = self.clock() - began
            if not self.missing or waited >= seconds:
                break
            if waited >= next_notice:
                next_notice = 2 * waited
                self.log(
                    f"Waiting for the end of {_named(self.missing)}, for {waited:.0f} s by now."
                )
            if self.pause(min(delay, seconds - waited)):
                return True
            delay = min(delay * 1.5, max(1.0, first_pause))
        return False

    def give_up(self, seconds: float) -> None:
        """Count hosts that have not reported within *seconds* as failed."""
        for host in self.missing:
            message = f"Host {host} did not report within {seconds:g} s."
            self.by_host[host] = unreported(host, message)

    def _failed(self) -> bool:
        return any(not end.succeeded and not end.lost_peer for end in self.by_host.values())

    def _look(self) -> None:
        prefix = f"{self.job.attempts}{self.attempt}/"
        try:
            there = {info.name for info in self.store.list(prefix)}
        except KineticError:
            return  # Unreachable for a moment, or removed.
        for host in self.missing:
            name = self.job.host_outcome(self.attempt, host)
            if name in there:
                self._read(host, name)

    def _read(self, host: int, name: str) -> None:
        try:
            data = read_verified(self.store, self.signer, name)
            if data is not None:
                self.by_host[host] = parse_host_end(host, data)
        except RecordError:
            self.by_host[host] = unreadable(host)
        except KineticError:
            return


def unreported(host: int, message: str) -> HostEnd:
    """Return the end of a host that has not reported."""
    return HostEnd(host, False, "unreported", EXIT_FUNCTION_FAILED, message=message)


def unreadable(host: int) -> HostEnd:
    """Return the end of a host whose report cannot be read."""
    return unreported(host, f"The job did not write what stands for the end of host {host}.")


def _named(hosts: list[int]) -> str:
    if len(hosts) == 1:
        return f"host {hosts[0]}"
    more = len(hosts) - _NAMED
    text = ", ".join(map(str, hosts[:_NAMED]))
    return f"hosts {text}" + (f" and {more} more" if more > 0 else "")
