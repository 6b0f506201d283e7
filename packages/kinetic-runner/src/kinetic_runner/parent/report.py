"""Write how a host's attempt ended, and the outcome of the job where this host decides it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from time import monotonic, time
from typing import Final, TypeVar

from kinetic_payload.errors import KineticError, RecordError
from kinetic_payload.layout import (
    EXIT_BAD_NODE,
    EXIT_FUNCTION_FAILED,
    EXIT_NOT_PREPARED,
    EXIT_TERMINATED,
    REPORT_SECONDS,
    STDERR_MARK,
    JobObjects,
)
from kinetic_payload.records.attempt_result import (
    HostEnd,
    Result,
    deciding,
    may_have_lost_peer,
    never_began,
    other_failures,
    parse_host_end,
    result_of,
)
from kinetic_payload.records.encode import encode
from kinetic_payload.records.host_outcome import HostOutcome
from kinetic_payload.records.outcome import FinalStatus, Outcome
from kinetic_payload.records.pending_uploads import PendingUploads
from kinetic_payload.records.retry import MOST_BAD_NODES, MOST_LOST, Tally, another_attempt
from kinetic_payload.records.signing import UNSIGNED, Signer
from kinetic_payload.records.storage import read_verified, write_once
from kinetic_payload.records.stored_outcomes import bad_nodes_before, read_host_ends, tally_before
from kinetic_payload.stores.store import Store
from kinetic_runner.hosts import FIRST_NOTICE, Host, names_of
from kinetic_runner.store_retries import WAIT, retry, retry_notice

T = TypeVar("T")

OTHER_HOSTS_SECONDS: Final = 330.0
"""How long the leader waits for the outcomes of the other hosts after its own success. Longer than a child
may linger: the hosts leave `jax.distributed` together."""

MOST_REPORT: Final = 192 * 1024
"""The most bytes of a report inside the outcome of a member of a batch."""
_FAILURE_SECONDS: Final = 2.0
_POLL_SECONDS: Final = 2.0
"""Seconds between polls of a host that lingers: all hosts but one may poll at the same time."""
_EXIT_UNFINISHED: Final = 1


def print_line(text: str) -> None:
    """Print a line of Kinetic's own to the standard error."""
    with suppress(OSError):  # A full disk may be the reason for the text.
        sys.stderr.write(f"{STDERR_MARK}[kinetic] {text}\n")
        sys.stderr.flush()


@dataclass(kw_only=True)
class Reporter:
    """Writes outcomes of one attempt of one job on one host."""

    store: Store
    job: JobObjects
    host: Host
    pause: Callable[[float], bool]
    """Waits; returns True once a stop is requested, which ends waiting for other hosts."""
    wait: Callable[[float], bool] = WAIT
    """Waits between retries of a write; SIGTERM does not end this wait."""
    retries: int | None = None
    """How many failures of the job are followed by another attempt; None: this host does not decide that."""
    silent_failures: bool = False
    """Whether attempts without a report consume retries: where nothing else limits how often they are repeated."""
    is_member: bool = False
    """Whether the job is a member of a batch: its outcome contains the report, and lost workers are counted."""
    other_hosts_seconds: float = OTHER_HOSTS_SECONDS
    """How long the leader waits for the other hosts. Infinite without a supervisor: SIGTERM ends the wait."""
    linger: float = 0.0
    """How many seconds a host that lost a peer, or whose peer was preempted, waits to be stopped."""
    seconds: float = REPORT_SECONDS
    """How many seconds to retry, for all writes together, while the store fails."""
    signer: Signer = UNSIGNED
    """Signs reports where the store is a bucket: write access alone must not suffice to forge one."""
    pending_uploads: PendingUploads | None = None
    """Keeps pending uploads on a disk that outlives the job; None if there is no such disk."""
    warn: Callable[[str], object] = print_line
    """Prints a warning, for instance the first time that the store fails."""
    log: Callable[[str], object] = print_line
    """Adds a line of Kinetic's own to the log."""
    clock: Callable[[], float] = monotonic
    reported: bool = field(default=False, init=False)
    """Whether everything to report is stored."""
    job_ended: bool = field(default=False, init=False)
    """Whether this host has written the final outcome of the job."""
    _own: HostOutcome | None = field(default=None, init=False)
    _attempt: int = field(default=0, init=False)
    """The attempt that is reported."""
    _ends: dict[int, HostEnd] = field(default_factory=dict, init=False)
    """How its hosts ended, as far as they have reported; this host is the first."""
    _until: float = field(default=0.0, init=False)
    _has_warned: bool = field(default=False, init=False)

    def keep(self, outcome: HostOutcome) -> None:
        """Write *outcome* to the disk if the store is a service, which may be unreachable for long."""
        if self.store.concurrency > 1:
            self._keep(outcome)

    def report(self, outcome: HostOutcome) -> int:
        """Write *outcome*, and the job's final outcome if this host decides it; return the exit code."""
        self._until = monotonic() + self.seconds
        if outcome.exit_code == EXIT_BAD_NODE:
            number = self._tally_before(outcome.attempt).bad_nodes
            if number >= MOST_BAD_NODES:
                # Not repeated any more.
                earlier = self._earlier(bad_nodes_before, outcome.attempt)
                nodes = ", ".join(sorted({*earlier, outcome.node or outcome.hostname}))
                message = f"{number + 1} attempts met a bad node ({nodes}). {outcome.message}"
                outcome = replace(
                    outcome, exit_code=EXIT_NOT_PREPARED, message=message, lost_peer=None
                )
        self.keep(outcome)
        self._store_value(outcome)
        self._own = outcome
        code = self._report(outcome)
        if self.pending_uploads is not None:
            self.pending_uploads.remove_note()
        self.reported = True
        return code

    def refuse(self, attempt: int, *, preemptions: int | None, replaced_alone: bool) -> str:
        """End the job instead of running *attempt* if that is of no use; return the reason, or an empty text.

        That is so if more than *preemptions* attempts were disrupted; if attempts that left no report have used up
        the retries; and, where each host is *replaced_alone*, if one finished: its index does not run again.
        """
        self._until = monotonic() + self.seconds
        last, message = self._refusal(attempt, preemptions, replaced_alone=replaced_alone)
        if message:
            self._write_final("failed", last, message=message)
        return message

    def _refusal(
        self, attempt: int, preemptions: int | None, *, replaced_alone: bool
    ) -> tuple[int, str]:
        """Return the attempt that decides, and why *attempt* is refused; an empty text if it is not."""
        last = attempt - 1
        retries = self.retries if self.silent_failures else None
        if any(limit is not None and last > limit for limit in (preemptions, retries)):
            tally = self._tally_before(attempt)
            if preemptions is not None and tally.disruptions > preemptions:
                number = tally.disruptions
                often = "once" if number == 1 else f"{number} times"
                return last, f"Preempted {often}; preemptions={preemptions} allows {preemptions}."
            if retries is not None and tally.failures > retries:
                return last, (
                    f"{tally.failures} attempts failed; retries={retries} allows {retries + 1}. The last one "
                    "left no report: its container was killed, possibly because it ran out of memory."
                )
        if self.is_member and last > 0:
            ends = self._earlier(read_host_ends, last)
            while last > 1 and never_began(ends):
                last -= 1
                ends = self._earlier(read_host_ends, last)
            if result_of(ends, self.host.count) == "succeeded":
                # Its worker was lost before it could write the outcome, or somebody has overwritten that.
                self._write_final("succeeded", last, deciding(ends))
                return last, f"Attempt {last} had succeeded."
        if self.is_member and last >= MOST_LOST:
            lost = sum(map(self._was_lost, range(1, attempt)))
            # The attempt that is refused leaves no report either: a retry by the user begins to count again.
            if lost % (MOST_LOST + 1) == MOST_LOST:
                return last, (
                    f"{lost} workers ended while they ran this input, without a report: they were killed, "
                    "possibly because they ran out of memory."
                )
        for number in range(1, attempt) if replaced_alone and self.host.leader else ():
            ends = self._earlier(read_host_ends, number)
            over = [str(end.host) for end in ends if end.succeeded]
            if over:
                return number, (
                    f"Host {', '.join(over)} finished attempt {number} and cannot run again: without JobSet, "
                    "the cluster replaces single hosts only."
                )
        return last, ""

    def _was_lost(self, attempt: int) -> bool:
        """Return whether a host has left no report of its own of an *attempt* that has begun."""
        ends = self._earlier(read_host_ends, attempt)
        # The process that replaces a lost one says that it was stopped, but not when.
        own = [end for end in ends if end.reason != "terminated" or end.stopped_at]
        return len(own) < self.host.count and not never_began(ends)

    def _report(self, outcome: HostOutcome) -> int:
        name = self.job.host_outcome(outcome.attempt, self.host.index)
        written = self._create(name, encode(outcome), on_first_failure=lambda: self._keep(outcome))
        if self.pending_uploads is not None:
            with suppress(OSError):
                self.pending_uploads.remove(name)
        if outcome.succeeded and not self.host.leader:
            return outcome.exit_code
        index = self.host.index
        try:
            own = _unreadable(index) if written is None else parse_host_end(index, written)
        except RecordError:
            own = _unreadable(index)
        self._attempt, self._ends = outcome.attempt, {index: own}
        if outcome.succeeded:
            return self._succeed()
        lost = may_have_lost_peer(own)
        if lost and self.linger and self._linger():
            return EXIT_TERMINATED
        if outcome.reason != "terminated" and self.retries is not None:
            if not lost:
                self._gather(_FAILURE_SECONDS)
            self._fail(prepared=outcome.exit_code != EXIT_NOT_PREPARED)
        return outcome.exit_code

    def _succeed(self) -> int:
        if self._gather(self.other_hosts_seconds, until_failure=True):
            return EXIT_TERMINATED
        if self._missing and self._chosen.succeeded:
            for host in self._missing:
                message = f"Host {host} did not report within {self.other_hosts_seconds:g} s."
                self._ends[host] = _unreported(host, message)
        if self._result == "succeeded":
            self._write_final("succeeded", self._attempt, self._chosen)
            return 0
        if self._chosen.reason == "terminated":
            # The system stopped a host. Leave the outcome open: the exit of that host decides for the slice.
            self.pause(self.linger)
            return EXIT_TERMINATED
        if self.retries is not None:
            self._fail()
        return _EXIT_UNFINISHED

    def _linger(self) -> bool:
        """Wait to be stopped, so that the host at fault ends the slice; return whether a stop was requested.

        If this host exited during the grace of the host at fault, its own exit would count as the failure.
        If all hosts report that they lost each other, no other host is at fault.
        """
        self.log(
            f"Another host may have ended: waiting to be stopped, for up to {self.linger:g} s."
        )
        until = self.clock() + self.linger
        if self._gather(self.linger, first_pause=_POLL_SECONDS):
            return True
        if self._result == "failed" and (
            self._chosen.lost_peer or self.host.index == self._chosen.host
        ):
            return False
        return self.pause(max(0.0, until - self.clock()))

    def _fail(self, *, prepared: bool = True) -> None:
        """Write that the job has failed, if the attempt has failed and no other attempt can follow."""
        chosen, ends, result = self._chosen, list(self._ends.values()), self._result
        if self.is_member and result == "unknown":
            # Nothing else counts its failures. By now, the other hosts had time to report.
            result = result_of(ends, len(ends))
        if result != "failed" or (prepared and self._another_follows(self._attempt, chosen)):
            return
        others = other_failures(ends, chosen)
        self._write_final("failed", self._attempt, chosen, message=chosen.message, others=others)

    @property
    def _missing(self) -> list[int]:
        """The hosts that have not reported."""
        return [host for host in range(self.host.count) if host not in self._ends]

    @property
    def _result(self) -> Result:
        """The result of the attempt, as far as hosts have reported."""
        return result_of(list(self._ends.values()), self.host.count)

    @property
    def _chosen(self) -> HostEnd:
        """The end that decides the result, among the known ends."""
        return deciding(list(self._ends.values()))

    def _gather(
        self, seconds: float, *, until_failure: bool = False, first_pause: float = 0.01
    ) -> bool:
        """Collect reports of other hosts for at most *seconds*; return whether a stop was requested meanwhile.

        With *until_failure*, return as soon as a host reports a failure of its own. A report that the job's
        key does not verify is ignored: its host replaces it.
        """
        began = self.clock()
        delay, next_notice = first_pause, FIRST_NOTICE

        def has_failed() -> bool:
            ends = self._ends.values()
            return any(not end.succeeded and not may_have_lost_peer(end) for end in ends)

        while self._missing and not (until_failure and has_failed()):
            self._read_new_reports()
            waited = self.clock() - began
            if not self._missing or waited >= seconds:
                break
            if waited >= next_notice:
                next_notice = 2 * waited
                hosts = names_of(self._missing)
                self.log(f"Still waiting for {hosts} to end, after {waited:.0f} s.")
            if self.pause(min(delay, seconds - waited)):
                return True
            delay = min(delay * 1.5, max(1.0, first_pause))
        return False

    def _read_new_reports(self) -> None:
        # The store may be unreachable for a moment, or the job was removed.
        there: set[str] = set()
        with suppress(KineticError):
            there |= {info.name for info in self.store.list(f"{self.job.attempts}{self._attempt}/")}
        for host in self._missing:
            name = self.job.host_outcome(self._attempt, host)
            try:
                data = read_verified(self.store, self.signer, name) if name in there else None
                if data is not None:
                    self._ends[host] = parse_host_end(host, data)
            except RecordError:
                self._ends[host] = _unreadable(host)
            except KineticError:
                continue

    def _another_follows(self, attempt: int, chosen: HostEnd) -> bool:
        def follows(earlier: Tally) -> bool:
            return another_attempt(chosen, earlier, retries=self.retries, preemptions=None)

        if not follows(Tally()) or follows(Tally(failures=attempt - 1)):
            return follows(Tally())  # Earlier attempts make no difference.
        return follows(self._tally_before(attempt))

    def _tally_before(self, attempt: int) -> Tally:
        return self._earlier(partial(tally_before, silent_failures=self.silent_failures), attempt)

    def _earlier(self, read: Callable[[Store, Signer, JobObjects, int, int], T], attempt: int) -> T:
        """Return what *read* finds in the store about *attempt*, or those before it."""
        return self._retry(
            lambda: read(self.store, self.signer, self.job, attempt, self.host.count)
        )

    def _write_final(
        self,
        status: FinalStatus,
        attempt: int,
        chosen: HostEnd | None = None,
        *,
        message: str = "",
        others: tuple[int, ...] = (),
    ) -> None:
        own, decides = self._own, (attempt, chosen.host if chosen else None)
        report = None  # It is an object of its own.
        if self.is_member and own is not None and decides == (own.attempt, own.host):
            report = own if len(encode(own)) <= MOST_REPORT else None
        outcome = Outcome(
            job_id=self.job.job_id,
            status=status,
            attempt=attempt,
            host=chosen.host if chosen is not None else None,
            digest=chosen.digest if chosen is not None else None,
            other_failed_hosts=others,
            message=message,
            written_by="runner",
            written_at=time(),
            report=report,
        )
        # The first outcome counts: a job cancelled a moment ago stays cancelled.
        self._create(self.job.outcome, encode(outcome))
        self.job_ended = True

    def _keep(self, outcome: HostOutcome) -> None:
        # A stop by SIGTERM is not kept on the disk.
        if self.pending_uploads is not None and outcome.reason != "terminated":
            name = self.job.host_outcome(outcome.attempt, self.host.index)
            with suppress(OSError):  # Then the outcome is only in the store.
                self.pending_uploads.write(name, self.signer.sign(encode(outcome), name))

    def _store_value(self, outcome: HostOutcome) -> None:
        """Store the value, or the exception, that the child left on the disk."""
        pending_uploads, error = self.pending_uploads, outcome.error
        pickled = outcome.value or (error.pickled if error is not None else None)
        if pending_uploads is None or pickled is None or pickled.name is None:
            return
        name, digest = pickled.name, pickled.digest
        if pending_uploads.has(name):
            self._keep(outcome)
            signed = self.signer.key is not None
            self._retry(
                lambda: pending_uploads.store_value(self.store, name, digest, replace=signed)
            )

    def _create(
        self, name: str, data: bytes, *, on_first_failure: Callable[[], object] = lambda: None
    ) -> bytes | None:
        """Write the record *name* once; return the record that is there, None if it cannot be read."""

        def warn(error: Exception) -> None:
            if not self._has_warned:
                on_first_failure()
            self._warn_once(error)

        try:
            return self._retry(lambda: write_once(self.store, self.signer, name, data), warn)
        except RecordError:
            return None

    def _retry(
        self, action: Callable[[], T], on_failure: Callable[[Exception], object] | None = None
    ) -> T:
        seconds, warn = self._seconds_left, on_failure or self._warn_once
        return retry(action, seconds=seconds, pause=self.wait, on_failure=warn)

    @property
    def _seconds_left(self) -> float:
        return max(0.0, self._until - monotonic())

    def _warn_once(self, error: Exception) -> None:
        if not self._has_warned:
            self._has_warned = True
            why = " ".join(str(error).split())
            text = f"The outcome of the job cannot be stored yet: {why} {retry_notice(self._seconds_left)}"
            self.warn(text)
            if self.pending_uploads is not None:
                self.pending_uploads.note(text)


def _unreadable(host: int) -> HostEnd:
    """Return the end of a host whose report cannot be read."""
    return _unreported(host, f"The report of host {host} is not valid: the job did not write it.")


def _unreported(host: int, message: str) -> HostEnd:
    return HostEnd(host, False, "unreported", EXIT_FUNCTION_FAILED, message=message)
