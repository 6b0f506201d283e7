"""The last words of a host, and of the job where this host may speak for it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic, time
from typing import Final

from kinetic_payload.errors import RecordError
from kinetic_payload.layout import (
    EXIT_NOT_PREPARED,
    EXIT_TERMINATED,
    REPORT_SECONDS,
    JobObjects,
)
from kinetic_payload.records.encode import encode
from kinetic_payload.records.host_outcome import HostOutcome
from kinetic_payload.records.outcome import FinalStatus, Outcome
from kinetic_payload.records.retry import HostEnd, Tally, another_attempt, end_in, other_failures
from kinetic_payload.records.signed import write_once
from kinetic_payload.records.signing import UNSIGNED, Signer
from kinetic_payload.records.unsaved import Unsaved
from kinetic_payload.stores.store import Store
from kinetic_runner.hosts import Host
from kinetic_runner.parent.other_hosts import Siblings, unreadable
from kinetic_runner.persistence import WAIT, persist, retrying

OTHERS_SECONDS: Final = 330.0
"""How long the leader waits for the others' outcomes after its own success. Longer than a child may
linger: the hosts leave `jax.distributed` together."""

_SIBLINGS_SECONDS: Final = 2.0
_LOOK_AGAIN: Final = 2.0
"""Seconds between looks of a host that lingers: all hosts but one may do so at once."""
_EXIT_UNFINISHED: Final = 1


def _say(text: str) -> None:
    with suppress(OSError):  # A full disk may be what the text is about.
        sys.stderr.write(f"[kinetic] {text}\n")
        sys.stderr.flush()


@dataclass(kw_only=True)
class Finish:
    """Writes outcomes of one attempt of one job on one host."""

    store: Store
    job: JobObjects
    host: Host
    pause: Callable[[float], bool]
    """Waits; True when this process was told to stop, which ends waiting for other hosts."""
    wait: Callable[[float], bool] = WAIT
    """Waits between tries to write; SIGTERM is no reason to leave without a word."""
    retries: int | None = None
    """How many failures of the job another attempt follows; None leaves its end to somebody else."""
    others_seconds: float = OTHERS_SECONDS
    """How long the leader waits for the others. Without a supervisor it is the resource that ends this."""
    linger: float = 0.0
    """How long a host that lost a peer, or whose peer was preempted, waits to be stopped."""
    seconds: float = REPORT_SECONDS
    """How long to try, for all that is written together, while the store fails."""
    signer: Signer = UNSIGNED
    """Signs what is reported where the store is a bucket: who can only write there is not believed."""
    unsaved: Unsaved | None = None
    """Keeps what the store does not have yet, on a disk that outlives the job; None without one."""
    say: Callable[[str], object] = _say
    """Reports that the store fails, the first time."""
    log: Callable[[str], object] = _say
    """Puts a line of Kinetic's own into the log."""
    clock: Callable[[], float] = monotonic
    reported: bool = field(default=False, init=False)
    """Whether all that there is to report is stored."""
    _until: float = field(default=0.0, init=False)
    _troubled: bool = field(default=False, init=False)

    def keep(self, outcome: HostOutcome) -> None:
        """Write *outcome* to the disk, where the store is a service: it may be away for long."""
        if self.store.concurrency > 1:
            self._keep(outcome)

    def report(self, outcome: HostOutcome) -> int:
        """Write *outcome*, and the job's final outcome if it is ours to write; return the exit code."""
        self._until = monotonic() + self.seconds
        self.keep(outcome)
        self._store_value(outcome)
        code = self._report(outcome)
        if self.unsaved is not None:
            self.unsaved.over()
        self.reported = True
        return code

    def refuse_if_preempted(self, attempt: int, preemptions: int) -> str:
        """End the job if more attempts than *preemptions* before *attempt* were disrupted.

        Return what is to be reported then; an empty text if the function may run.
        """
        self._until = monotonic() + self.seconds
        if attempt - 1 <= preemptions:
            return ""
        disruptions = self._before(attempt).disruptions
        if disruptions <= preemptions:
            return ""
        message = f"Preempted {disruptions} times; preemptions={preemptions} allows {preemptions}."
        self._write_final("failed", attempt - 1, message=message)
        return message

    def _report(self, outcome: HostOutcome) -> int:
        name = self.job.host_outcome(outcome.attempt, self.host.index)
        written = self._create(name, encode(outcome), failing=lambda: self._keep(outcome))
        if self.unsaved is not None:
            with suppress(OSError):
                self.unsaved.remove(name)
        if outcome.succeeded and not self.host.leader:
            return outcome.exit_code
        siblings = self._siblings(outcome.attempt, written)
        if outcome.succeeded:
            return self._succeed(siblings)
        if outcome.lost_peer and self._linger(siblings):
            return EXIT_TERMINATED
        if outcome.reason != "terminated" and self.retries is not None:
            if not outcome.lost_peer:
                siblings.gather(_SIBLINGS_SECONDS)
            self._fail(siblings, prepared=outcome.exit_code != EXIT_NOT_PREPARED)
        return outcome.exit_code

    def _siblings(self, attempt: int, written: bytes | None) -> Siblings:
        index = self.host.index
        try:
            own = end_in(index, written) if written is not None else unreadable(index)
        except RecordError:
            own = unreadable(index)
        return Siblings(
            store=self.store,
            job=self.job,
            host=self.host,
            attempt=attempt,
            signer=self.signer,
            ends={index: own},
            pause=self.pause,
            clock=self.clock,
            log=self.log,
        )

    def _succeed(self, siblings: Siblings) -> int:
        if siblings.gather(self.others_seconds, until_failure=True):
            return EXIT_TERMINATED
        if siblings.missing and siblings.chosen.succeeded:
            siblings.give_up(self.others_seconds)
        if siblings.result == "succeeded":
            self._write_final("succeeded", siblings.attempt, siblings.chosen)
            return 0
        if siblings.chosen.reason == "terminated":
            # A host that the system stopped leaves the outcome open, and its end decides about the slice.
            self.pause(self.linger)
            return EXIT_TERMINATED
        if self.retries is not None:
            self._fail(siblings)
        return _EXIT_UNFINISHED

    def _linger(self, siblings: Siblings) -> bool:
        """Leave the end of the slice to the host at fault; return whether this one was told to stop.

        It exits while that one may still be in its grace, and would count as the failure. Where all
        hosts say that they lost each other, none is at fault but them.
        """
        self.log(
            f"Another host may have ended: waiting to be stopped, for up to {self.linger:g} s."
        )
        until = self.clock() + self.linger
        if siblings.gather(self.linger, first_pause=_LOOK_AGAIN):
            return True
        if siblings.result == "failed" and siblings.chosen.lost_peer:
            return False
        return self.pause(max(0.0, until - self.clock()))

    def _fail(self, siblings: Siblings, *, prepared: bool = True) -> None:
        """Write that the job has failed, if the attempt has and no other one can follow."""
        chosen, attempt = siblings.chosen, siblings.attempt
        if siblings.result != "failed" or (prepared and self._another_follows(attempt, chosen)):
            return
        self._write_final(
            "failed",
            attempt,
            chosen,
            message=chosen.message,
            others=other_failures(list(siblings.ends.values()), chosen),
        )

    def _another_follows(self, attempt: int, chosen: HostEnd) -> bool:
        def follows(earlier: Tally) -> bool:
            return another_attempt(chosen, earlier, retries=self.retries, preemptions=None)

        if not follows(Tally()) or follows(Tally(failures=attempt - 1)):
            return follows(Tally())  # Whatever earlier attempts were.
        return follows(self._before(attempt))

    def _before(self, attempt: int) -> Tally:
        from kinetic_payload.records.attempt_outcomes import tally_before

        return persist(
            lambda: tally_before(self.store, self.signer, self.job, attempt, self.host.count),
            seconds=self._left,
            pause=self.wait,
            failing=self._failing,
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
        )
        # Who was first, was first: a job cancelled a moment ago stays cancelled.
        self._create(self.job.outcome, encode(outcome))

    def _keep(self, outcome: HostOutcome) -> None:
        if self.unsaved is not None and _is_its_own(outcome):
            name = self.job.host_outcome(outcome.attempt, self.host.index)
            with suppress(OSError):  # Then the store alone can take it.
                self.unsaved.write(name, self.signer.sign(encode(outcome), name))

    def _store_value(self, outcome: HostOutcome) -> None:
        """Store the value, or the exception, that the child left on the disk."""
        unsaved, error = self.unsaved, outcome.error
        pickled = outcome.value or (error.pickled if error is not None else None)
        if unsaved is None or pickled is None or pickled.name is None:
            return
        name, digest = pickled.name, pickled.digest
        if unsaved.has(name):
            self._keep(outcome)
            persist(
                lambda: unsaved.store_value(
                    self.store, name, digest, replace=self.signer.key is not None
                ),
                seconds=self._left,
                pause=self.wait,
                failing=self._failing,
            )

    def _create(
        self, name: str, data: bytes, *, failing: Callable[[], object] = lambda: None
    ) -> bytes | None:
        """Write the record *name* once; return the one that counts, None if there can be none."""

        def failed(error: Exception) -> None:
            if not self._troubled:
                failing()
            self._failing(error)

        try:
            return persist(
                lambda: write_once(self.store, self.signer, name, data),
                seconds=self._left,
                pause=self.wait,
                failing=failed,
            )
        except RecordError:
            return None

    @property
    def _left(self) -> float:
        return max(0.0, self._until - monotonic())

    def _failing(self, error: Exception) -> None:
        if not self._troubled:
            self._troubled = True
            why = " ".join(str(error).split())
            text = f"The end of the job cannot be stored yet: {why} {retrying(self._left)}"
            self.say(text)
            if self.unsaved is not None:
                self.unsaved.say(text)


def _is_its_own(outcome: HostOutcome) -> bool:
    """Return whether the function ended by itself; that it was stopped is not worth keeping."""
    return outcome.reason != "terminated"
