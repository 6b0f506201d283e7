"""The last words of a host, and of the job where this host may speak for it."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic, time
from typing import Final

from kinetic_payload.errors import KineticError, RecordError, SignatureError
from kinetic_payload.layout import (
    EXIT_NOT_PREPARED,
    EXIT_TERMINATED,
    REPORT_SECONDS,
    JobObjects,
)
from kinetic_payload.limits import read_record
from kinetic_payload.records import FinalStatus, HostOutcome, Outcome, encode, fields_of
from kinetic_payload.signing import UNSIGNED, Signer
from kinetic_payload.store import Store
from kinetic_payload.unsaved import Unsaved
from kinetic_runner.hosts import Host
from kinetic_runner.persistence import WAIT, create_once, persist, retrying

OTHERS_SECONDS: Final = 330.0
"""How long the leader waits for the others' outcomes after its own success. Longer than a child may
linger: the hosts leave `jax.distributed` together."""

_SIBLINGS_SECONDS: Final = 2.0
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
    last_attempt: int | None = None
    """Failures of this attempt and later ones are final; None leaves them to somebody else."""
    seconds: float = REPORT_SECONDS
    """How long to try, for all that is written together, while the store fails."""
    signer: Signer = UNSIGNED
    """Signs what is reported where the store is a bucket: who can only write there is not believed."""
    unsaved: Unsaved | None = None
    """Keeps what the store does not have yet, on a disk that outlives the job; None without one."""
    say: Callable[[str], object] = _say
    """Reports that the store fails, the first time."""
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
        return code

    def _report(self, outcome: HostOutcome) -> int:
        attempt = outcome.attempt
        name = self.job.host_outcome(attempt, self.host.index)
        written = self._create(name, encode(outcome), failing=lambda: self._keep(outcome))
        if self.unsaved is not None:
            with suppress(OSError):
                self.unsaved.remove(name)
        if outcome.succeeded:
            return self._succeed(attempt, written) if self.host.leader else outcome.exit_code
        if outcome.reason != "terminated" and self._is_final(attempt, outcome.exit_code):
            seen = {self.host.index: written}
            if self.host.count > 1:
                self._gather(attempt, seen, _SIBLINGS_SECONDS, until_failure=False)
            self._fail(attempt, seen)
        return outcome.exit_code

    def _succeed(self, attempt: int, written: bytes) -> int:
        seen = {self.host.index: written}
        if self._gather(attempt, seen, OTHERS_SECONDS, until_failure=True):
            return EXIT_TERMINATED
        failed = _failed(seen)
        missing = [host for host in range(self.host.count) if host not in seen]
        if not failed and not missing:
            self._write_final("succeeded", attempt, self.host.index, written)
            return 0
        if failed and all(_was_terminated(seen[host]) for host in failed):
            return EXIT_TERMINATED  # A host that the system stopped leaves the outcome open.
        if self._is_final(attempt, _EXIT_UNFINISHED):
            self._fail(attempt, seen)
        return _EXIT_UNFINISHED

    def _fail(self, attempt: int, seen: dict[int, bytes]) -> None:
        failed = _failed(seen)
        if not failed:
            missing = ", ".join(str(n) for n in range(self.host.count) if n not in seen)
            message = f"No word from host(s) {missing} within {OTHERS_SECONDS:g} s."
            self._write_final("failed", attempt, self.host.index, seen[self.host.index], message)
            return
        lowest, *others = failed
        message = str(fields_of(seen[lowest]).get("message", ""))
        if seen[lowest] is _FORGED:
            message = f"The job did not write what stands for the end of host {lowest}."
        self._write_final("failed", attempt, lowest, seen[lowest], message, tuple(others))

    def _gather(
        self, attempt: int, seen: dict[int, bytes], seconds: float, *, until_failure: bool
    ) -> bool:
        """Collect the other hosts' outcomes into *seen*; return whether we were told to stop."""
        until = monotonic() + seconds
        delay = 0.01
        while len(seen) < self.host.count and not (until_failure and _failed(seen)):
            for host in set(range(self.host.count)) - set(seen):
                name = self.job.host_outcome(attempt, host)
                try:
                    if self.store.stat(name) is not None:
                        seen[host] = self._read(name)
                except KineticError:
                    continue  # Away for a moment, or removed: the time limit decides.
            if len(seen) == self.host.count or monotonic() > until:
                break
            if self.pause(delay):
                return True
            delay = min(delay * 1.5, 1.0)
        return False

    def _is_final(self, attempt: int, exit_code: int) -> bool:
        # Nobody tries again what could not be prepared.
        last = self.last_attempt
        return last is not None and (attempt >= last or exit_code == EXIT_NOT_PREPARED)

    def _write_final(
        self,
        status: FinalStatus,
        attempt: int,
        host: int,
        written: bytes,
        message: str = "",
        others: tuple[int, ...] = (),
    ) -> None:
        outcome = Outcome(
            job_id=self.job.job_id,
            status=status,
            attempt=attempt,
            host=host,
            digest=hashlib.sha256(written).hexdigest() if written is not _FORGED else None,
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
                lambda: unsaved.store_value(self.store, name, digest),
                seconds=self._left,
                pause=self.wait,
                failing=self._failing,
            )

    def _create(
        self, name: str, data: bytes, *, failing: Callable[[], object] = lambda: None
    ) -> bytes:
        def failed(error: Exception) -> None:
            if not self._troubled:
                failing()
            self._failing(error)

        sealed = self.signer.sign(data, name)
        try:
            written = create_once(
                self.store, name, sealed, seconds=self._left, pause=self.wait, failing=failed
            )
        except RecordError:
            return _FORGED
        return self._verified(written, name)

    def _read(self, name: str) -> bytes:
        try:
            return self._verified(read_record(self.store, name), name)
        except RecordError:
            return _FORGED

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

    def _verified(self, data: bytes, name: str) -> bytes:
        try:
            self.signer.verify(data, name)
        except SignatureError:
            return _FORGED
        return data


def _is_its_own(outcome: HostOutcome) -> bool:
    """Return whether the function ended by itself; that it was stopped is not worth keeping."""
    return outcome.reason != "terminated"


_FORGED: Final = b""
"""In place of a report that somebody wrote who does not have the job's key: it reads as a failure."""


def _failed(seen: dict[int, bytes]) -> list[int]:
    return sorted(host for host, data in seen.items() if not fields_of(data).get("succeeded"))


def _was_terminated(data: bytes) -> bool:
    return fields_of(data).get("reason") == "terminated"
