"""`BatchHandle`: a submitted batch, usable from any process."""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, cast, overload

from kinetic.batches.progress import Progress, grid, summary
from kinetic.batches.states import MOST, Look, States
from kinetic.errors import (
    BatchError,
    JobError,
    JobNotFoundError,
    KineticError,
    ResultTimeoutError,
    SubmitError,
)
from kinetic.job_status import JobStatus
from kinetic.jobs.fetch import fetch
from kinetic.jobs.handle import JobHandle, T_co, handle_of
from kinetic.jobs.members import member_services
from kinetic.jobs.outages import PASSING, Outages, patiently
from kinetic.jobs.outcome import status_of
from kinetic.jobs.records import write_outcome
from kinetic.jobs.services import Services, connect
from kinetic.jobs.status import View
from kinetic.quantities import parse_wait
from kinetic.target import Target
from kinetic.user_warnings import caller_warning, warn_caller, warn_or_log
from kinetic.waiting import Deadline, in_thread, sleep
from kinetic_payload.backoff import Backoff
from kinetic_payload.errors import ObjectNotFoundError, SignatureError, StoreError
from kinetic_payload.layout import JobObjects, is_job_object
from kinetic_payload.limits import read_record
from kinetic_payload.records.outcome import FinalStatus, Outcome
from kinetic_payload.stores.store import parse_location
from kinetic_payload.threads import Future, check_wanted, parallel_map, stoppable

if TYPE_CHECKING:
    from kinetic.settings.settings import Settings
    from kinetic_payload.records.batch import GroupManifest
    from kinetic_payload.stores.store import Location

_FIRST_PAUSE: Final = 0.05
_POLL_SECONDS: Final = 5.0
_CLEANUP_SECONDS: Final = 180.0
_NAMED: Final = 5
"""How many exceptions the notes of an error name."""


_READS_FOR: Final = 86400.0
"""Seconds after which somebody who collects the values is taken to have been killed."""


class BatchHandle(Generic[T_co]):
    """A batch: many calls of one function. Any process on any machine may have a handle of it.

    `run_async_map` and `attach_batch` make it. Looking at it never starts anything. A wait for it (`wait`,
    `as_completed`, `results`, `iter_results`) starts its workers again if they were lost, as `resume` does.
    """

    def __init__(
        self,
        manifest: GroupManifest,
        services: Services,
        *,
        stored: bytes | None = None,
        submission_errors: dict[int, Exception] | None = None,
    ) -> None:
        """Make the handle of *manifest*, whose *stored* bytes were read from a store, if they were.

        *submission_errors* are those of this process; the manifest has their texts.
        """
        self._manifest = manifest
        self._services = services
        self._stored = stored
        if stored is not None:
            try:
                services.verify(stored, JobObjects(manifest.group_id).handle)
            except SignatureError as error:
                warn_caller(
                    f"{error.message} The batch can be read; do not trust its name and tags."
                )
        self._errors = submission_errors or {
            int(index): SubmitError(f"Input {index} was not submitted: {text}")
            for index, text in manifest.failed.items()
        }
        self._known = States(manifest, services)
        self._quiet = False
        """Whether waits show no progress."""
        self._process = 0
        self._removal: Future[None] | None = None
        """The clean-up that `results` has begun in that process."""
        self._handles: list[JobHandle[T_co] | None] = []
        self._failures: list[JobHandle[T_co]] | None = None
        self._collected: dict[int, Any] | None = None
        """The values of a batch that was cleaned up, by index in the order in which they ended."""

    @property
    def _states(self) -> States:
        """What is known of the inputs; a clean-up that is under way ends first."""
        if self._removal is not None and self._process == os.getpid():
            self._removal.result()
        return self._known

    @property
    def group_id(self) -> str:
        """The batch's identifier, such as `grp-a1b2c3d4`."""
        return self._manifest.group_id

    @property
    def name(self) -> str | None:
        """The name that it was given."""
        return self._manifest.name

    @property
    def tags(self) -> dict[str, str]:
        """The tags that it was given."""
        return dict(self._manifest.tags)

    @property
    def jobs(self) -> list[JobHandle[T_co] | None]:
        """A handle for each input, in their order; None for one that could not be submitted."""
        if not self._handles:
            shared = member_services(self._services, self._manifest.member(0))
            self._handles = [
                None
                if index in self._errors
                else handle_of(self._manifest.member(index), shared, stored=self._stored)
                for index in range(len(self))
            ]
        return [*self._handles]

    def _job(self, index: int) -> JobHandle[T_co]:
        found = self._handles or self.jobs
        return cast("JobHandle[T_co]", found[index])

    def __len__(self) -> int:
        """Return the number of inputs, with those that could not be submitted."""
        return self._manifest.total_expected

    @property
    def submission_failures(self) -> dict[int, Exception]:
        """By index, the errors of inputs that could not be submitted: they are no jobs."""
        return dict(self._errors)

    def statuses(self) -> list[tuple[int, JobStatus]]:
        """Return index and status of each submitted input, by a list of their outcomes.

        Workers begin with the lowest indexes; of those without an outcome, the first ones count as running.
        """
        return sorted(self._states.look().statuses.items())

    def status_counts(self) -> dict[str, int]:
        """Return how many submitted inputs have each status; statuses that none has are left out."""
        return dict(Counter(status.value for _, status in self.statuses()))

    def failures(self) -> list[JobHandle[T_co]]:
        """Return the handles of inputs that failed; after `results`, of those that failed then."""
        if self._failures is not None:
            return list(self._failures)
        return [self._job(index) for index, status in self.statuses() if status is JobStatus.FAILED]

    def wait(self, *, timeout: float | None = None) -> None:
        """Wait until no input waits or runs any more.

        Raises:
            TimeoutError: *timeout* seconds have passed; the batch continues.
            KineticError: The store or the cluster refuses access.
        """
        for _ in self._ends(timeout=timeout):
            pass

    def as_completed(
        self, *, poll_interval: float = _POLL_SECONDS, timeout: float | None = None
    ) -> Iterator[JobHandle[T_co]]:
        """Iterate over the jobs as they end, each once. Those that were never started come last.

        Args:
            poll_interval: The most seconds between two looks.
            timeout: Seconds to wait in total.

        Raises:
            TimeoutError: *timeout* seconds have passed; the batch continues.
        """
        for index, _ in self._ends(timeout=timeout, poll_interval=poll_interval):
            yield self._job(index)

    @overload
    def results(
        self,
        *,
        timeout: float | None = ...,
        ordered: bool = ...,
        cleanup: bool = ...,
        return_exceptions: Literal[False] = ...,
    ) -> list[T_co]: ...
    @overload
    def results(
        self,
        *,
        timeout: float | None = ...,
        ordered: bool = ...,
        cleanup: bool = ...,
        return_exceptions: bool,
    ) -> list[T_co | BaseException]: ...
    def results(
        self,
        *,
        timeout: float | None = None,
        ordered: bool = True,
        cleanup: bool = True,
        return_exceptions: bool = False,
    ) -> list[Any]:
        """Wait for all inputs, and return their values.

        Args:
            timeout: Seconds to wait for all of them.
            ordered: Return the values in the order of the inputs. If not, in the order in which they ended;
                `iter_results(ordered=False)` also tells to which input each belongs.
            cleanup: Remove the resource and the objects of the batch once all inputs have succeeded, in the
                background: this process ends after that, and further calls of this handle wait for it. The manifest
                stays. A batch with failures stays until `cleanup`.
            return_exceptions: Return the exception of an input in place of its value, instead of raising.

        Raises:
            BatchError: Inputs failed, were never started, or could not be submitted.
            TimeoutError: *timeout* seconds have passed; the batch continues.
        """
        collected = self._collected
        found: dict[int, Any] = {} if collected is None else collected
        failed: dict[int, BaseException] = {}
        with self._reading() if collected is None else nullcontext():
            for index, value, error in self._values(timeout) if collected is None else ():
                found[index] = value
                if error is not None:
                    failed[index] = error
                    found[index] = error if return_exceptions else None
        # Another thread may have collected them meanwhile, and clean up.
        if failed and self._collected is not None:
            found, failed, collected = self._collected, {}, self._collected
        values = [found[index] for index in range(len(self))]
        self._failures = [self._job(index) for index in sorted(failed) if index not in self._errors]
        if failed and not return_exceptions:
            raise self._error(failed, values)
        if cleanup and not failed and collected is None:
            self._collected = found
            self._remove_in_background()
        return values if ordered else list(found.values())

    def iter_results(
        self, *, ordered: bool = True, timeout: float | None = None, return_exceptions: bool = False
    ) -> Results:
        """Iterate over pairs of an input's index and its value as they arrive; `async for` works as well.

        No value is kept: a batch may be larger than memory. With *ordered*, a value waits for those before it, and
        is fetched when its turn has come. Nothing is cleaned up.

        Raises:
            BatchError: Inputs failed; raised after all values. With *return_exceptions* their exceptions come in
                place of values.
            TimeoutError: *timeout* seconds have passed; the batch continues.
        """
        return Results(
            partial(
                self._iterate,
                ordered=ordered,
                timeout=timeout,
                return_exceptions=return_exceptions,
            )
        )

    def _iterate(
        self, *, ordered: bool, timeout: float | None, return_exceptions: bool
    ) -> Iterator[tuple[int, Any]]:
        failed: dict[int, BaseException] = {}
        if (known := self._collected) is not None:
            yield from sorted(known.items()) if ordered else known.items()
            return
        values = self._in_order(timeout) if ordered else self._values(timeout)
        for index, value, error in values:
            if error is None:
                yield index, value
            else:
                failed[index] = error
                if return_exceptions:
                    yield index, error
        if failed and not return_exceptions:
            raise self._error(failed, [])

    def _in_order(self, timeout: float | None) -> Iterator[tuple[int, Any, BaseException | None]]:
        first, ended = 0, set(self._errors)
        early: dict[int, Outcome | None] = {}
        """By index, outcomes whose turn has not come, None for inputs without one; of the rest, each is read again."""
        for index, outcome in self._ends(timeout=timeout):
            ended.add(index)
            if len(early) < MOST or outcome is None:
                early[index] = outcome
            while first in ended:
                known = first in self._errors or first in early
                outcome = early.pop(first, None)
                if not known:
                    read = partial(self._states.outcome_of, first)
                    outcome = patiently(read, _outages(self.group_id, reached=True))
                yield self._value(first, outcome)
                first += 1

    def _values(self, timeout: float | None) -> Iterator[tuple[int, Any, BaseException | None]]:
        """Iterate over index, value and exception of each input, as they end."""
        for index in self._errors:
            yield self._value(index, None)
        for index, outcome in self._ends(timeout=timeout):
            yield self._value(index, outcome)

    def _value(self, index: int, outcome: Outcome | None) -> tuple[int, Any, BaseException | None]:
        if index in self._errors:
            return index, None, self._errors[index]
        try:
            if outcome is None:
                raise self._states.why_not(index)
            view = View(status_of(outcome), outcome, outcome.message)
            found = patiently(
                partial(fetch, outcome.job_id, view, self._services),
                _outages(self.group_id, reached=True),
            )
        except ObjectNotFoundError as error:
            return index, None, self._states.why_gone(index) or error
        except KineticError as error:
            return index, None, error
        return index, found.value, found.error

    def _ends(
        self, *, timeout: float | None, poll_interval: float = _POLL_SECONDS
    ) -> Iterator[tuple[int, Outcome | None]]:
        """Iterate over the inputs as they end, each with its outcome; without one if it was never started."""
        deadline = Deadline(parse_wait(timeout))
        done: set[int] = set()
        # How many inputs had ended when lost workers were started again: once more only after progress.
        resumed_with: int | None = None
        outages, pauses = _outages(self.group_id), Backoff(_FIRST_PAUSE, poll_interval, jitter=0)
        with Progress(self._manifest, quiet=self._quiet) as progress, self._note_if_interrupted():
            while True:
                look: Look = patiently(
                    partial(self._states.look, skip=done, most=MOST), outages, deadline=deadline
                )
                if look.ended:
                    progress.hide()
                for index, outcome in look.ended:
                    if index in done:
                        continue  # Somebody runs it again.
                    done.add(index)
                    pauses.reset()
                    yield index, outcome
                look.ended.clear()  # The next look needs the memory.
                progress.show(look)
                if self._states.only_idle_workers_are_left(look):
                    self._stop()
                    continue
                if look.more:
                    continue
                left = [index for index in look.left if index not in done]
                if look.over:
                    gone = look.elsewhere or look.collected
                    lost = left and not gone and len(done) != resumed_with
                    if lost and self._continue(deadline, len(left)):
                        resumed_with = len(done)
                        continue
                    for index in left:
                        yield index, None
                    return
                if deadline.passed:
                    raise self._timed_out(len(left))
                sleep(deadline.at_most(pauses.next()))
                check_wanted()

    def _error(self, failed: dict[int, BaseException], values: list[Any]) -> BatchError:
        handles = [self._job(index) for index in sorted(failed) if index not in self._errors]
        found = dict(sorted(failed.items()))
        error = BatchError(self.group_id, handles, values, total=len(self), exceptions=found)
        for index, one in [*found.items()][:_NAMED]:
            error.add_note(f"Input {index}: {type(one).__name__}: {one}")
        return error

    @contextmanager
    def _note_if_interrupted(self) -> Iterator[None]:
        try:
            yield
        except KeyboardInterrupt as error:
            error.add_note(f"The batch continues. {self._come_back}")
            raise

    @property
    def _come_back(self) -> str:
        return f"Come back with kinetic.attach_batch({self.group_id!r})."

    def _timed_out(self, left: int) -> ResultTimeoutError:
        return ResultTimeoutError(
            f"{left} of {len(self)} inputs of {self.group_id} have not ended; the batch continues.",
            hint=self._come_back,
            job_id=self.group_id,
        )

    def _continue(self, deadline: Deadline, left: int) -> bool:
        """Start lost workers of the *left* inputs again; return whether the batch goes on, here or by another process."""
        from kinetic.batches.resume import LeaseTakenError

        while True:
            check_wanted()
            try:
                self.resume(assume_yes=True)
                break
            except LeaseTakenError:  # Another process starts them at this moment.
                if deadline.passed:
                    raise self._timed_out(left) from None
                sleep(deadline.at_most(1.0))
            except JobNotFoundError:
                return False  # It was cleaned up.
            except KineticError as error:
                warn_caller(
                    f"{self.group_id} lost its workers, and they cannot be started again: {error}"
                )
                return False
        return self._states.find_stop() is None

    def resume(self, *, assume_yes: bool = False) -> None:
        """Start the workers again of a batch that lost them, for instance because its machine was switched off.

        Nothing happens to a batch that runs, is complete or was stopped on purpose. Inputs with an outcome do not run again.

        On a terminal, it asks before it starts more than 1,000 inputs on accelerators, unless *assume_yes*.

        Raises:
            SignatureError: It was submitted with another key than yours.
            KineticError: The workers cannot be started from here, or another process is starting them.
        """
        self._start_again(failed=False, ask=not assume_yes)

    def retry_failed(self, *, assume_yes: bool = False) -> None:
        """Run the inputs again that failed or were never started, as further attempts of the same batch.

        On a terminal, it asks before it starts more than 1,000 inputs on accelerators, unless *assume_yes*.

        Raises:
            JobError: The batch still runs, or another process is starting its workers.
            SignatureError: It was submitted with another key than yours.
            KineticError: The workers cannot be started from here.
        """
        self._start_again(failed=True, ask=not assume_yes)

    def _start_again(self, *, failed: bool, ask: bool) -> None:
        from kinetic.batches.resume import (
            MANY,
            confirm,
            lease,
            relaunch,
            request_again,
            start_workers,
        )

        services, names = self._services, JobObjects(self.group_id)
        stored = self._refuse_without_key()
        look = self._states.look()
        if not failed and (look.collected or not look.over):
            return
        missing = [index for index, one in look.statuses.items() if one is not JobStatus.SUCCEEDED]
        again = missing if failed else look.left
        if ask and look.over and len(again) > MANY:
            # Not within the lease, which does not wait for an answer.
            workers = len({index // self._manifest.per_worker for index in again})
            at_once = self._manifest.max_concurrent
            confirm(request_again(self._manifest), len(again), workers=workers, at_once=at_once)
        with lease(self.group_id, services):
            # Within the lease: another process may have started them a moment ago.
            self._known = States(self._manifest, services)
            look = self._states.look()
            if not look.over:
                if not failed:
                    return
                raise JobError(
                    f"{self.group_id} still runs.",
                    hint="Wait for its end, or cancel it.",
                    job_id=self.group_id,
                )
            if look.elsewhere:
                raise SubmitError(
                    f"The workers of {self.group_id} cannot be started from here. {look.reason}".rstrip(),
                    hint="Start them on the machine on which it was submitted, with the same KINETIC_HOME.",
                )
            if not failed and self._states.find_stop() is not None:
                return  # On purpose: `retry_failed` starts what is left.
            left = set(look.left)
            ended = [
                index
                for index, status in look.statuses.items()
                if failed and status is JobStatus.FAILED and index not in left
            ]
            if not (left or ended):
                return
            try:
                launch = relaunch(self._manifest, stored, services, [*left, *ended])
            except ObjectNotFoundError as error:
                raise self._cleaned_up() from error
            self._failures = None
            outcomes = [JobObjects(self._manifest.job_id(i)).outcome for i in ended]
            parallel_map(services.store.delete, outcomes, threads=services.store.concurrency)
            if failed:
                services.store.delete(names.outcome)
            start_workers(launch, services)
        self._known = States(self._manifest, services)

    def _refuse_without_key(self) -> bytes:
        """Return the stored manifest, which is signed with our key.

        Raises:
            SignatureError: It is not.
            JobNotFoundError: The batch was cleaned up.
        """
        name = JobObjects(self.group_id).handle
        try:
            stored = self._stored or read_record(self._services.store, name)
        except ObjectNotFoundError as error:
            raise self._cleaned_up() from error
        self._services.refuse_without_key(stored, name)
        return stored

    def _cleaned_up(self) -> JobNotFoundError:
        return JobNotFoundError(
            f"{self.group_id} was cleaned up: nothing of it can be started again.",
            job_id=self.group_id,
        )

    def cancel(self) -> None:
        """Stop the batch: what runs is stopped, and nothing else is started. Values that are there stay.

        Raises:
            SignatureError: It was submitted with another key than yours.
            JobError: A worker still runs after three minutes.
        """
        store, names = self._services.store, JobObjects(self.group_id)
        if store.stat(names.handle) is None:
            return  # It was cleaned up.
        self._refuse_without_key()
        look = self._states.look()
        if look.over and (not look.left or store.stat(names.payload) is None):
            return
        self._write_end("cancelled", "The batch was cancelled.")
        self._stop()

    def _write_end(self, status: FinalStatus, message: str) -> None:
        now = time.time()
        outcome = Outcome(
            job_id=self.group_id,
            status=status,
            message=message,
            written_by="client",
            written_at=now,
        )
        write_outcome(self._services, outcome)

    def _stop(self, *, remove: bool = False) -> None:
        record = self._manifest.job_record
        self._services.backend.stop(
            record, timeout=_CLEANUP_SECONDS, poll_interval=0.5, remove=remove
        )

    def cleanup(self, *, k8s: bool = True, gcs: bool = True) -> None:
        """Remove the resource of the batch (*k8s*), and its objects with its manifest (*gcs*).

        A batch that still runs is cancelled. Logs and everything under `KINETIC_OUTPUT_DIR` stay.

        Raises:
            SignatureError: It was submitted with another key than yours.
            JobError: A worker still runs after three minutes.
        """
        with suppress(JobNotFoundError):
            self._refuse_without_key()
        if k8s:
            self.cancel()
            self._stop(remove=True)
        elif gcs and not self._states.look().over:
            raise JobError(
                f"{self.group_id} still runs, and needs its objects.",
                hint="Cancel it first, or clean up the resource as well.",
                job_id=self.group_id,
            )
        if gcs:
            self._remove_objects()

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Within the block, let no other process remove the values, if the store can be written to."""
        store, name = (
            self._services.store,
            f"{JobObjects(self.group_id).readers}{secrets.token_hex(4)}",
        )
        with suppress(StoreError):
            store.write(name, b"")
        try:
            yield
        finally:
            with suppress(StoreError):
                store.delete(name)

    def _remove_in_background(self) -> None:
        warn, self._removal, self._process = caller_warning(), Future(), os.getpid()

        def remove() -> None:
            store, names = self._services.store, JobObjects(self.group_id)
            oldest = time.time() - _READS_FOR
            try:
                if any(info.updated > oldest for info in store.list(names.readers)):
                    return  # Another process collects the values, and then removes them.
                self._refuse_without_key()
                # Otherwise nothing would tell later that all inputs have succeeded. It may have been stopped when they had.
                store.delete(names.outcome)
                self._write_end("succeeded", "All values were collected, and then removed.")
                self._stop(remove=True)
                self._remove_objects(all_of_it=False)
            except Exception as error:  # noqa: BLE001 - whatever it is, the values were fetched
                text = f"The results of {self.group_id} were collected, but its clean-up failed: {error}"
                warn_or_log(text, warn)

        # Not a daemon: the interpreter waits for it.
        threading.Thread(target=self._removal.run, args=(remove,), name="kinetic-clean-up").start()

    def _remove_objects(self, *, all_of_it: bool = True) -> None:
        store, names = self._services.store, JobObjects(self.group_id)
        kept = (names.handle,) if all_of_it else (names.handle, names.outcome)
        found = [
            info.name
            for info in store.list(names.prefix)
            if is_job_object(info.name, self.group_id) and info.name not in kept
        ]
        # First what every worker needs: a clean-up that is interrupted must not be continued as a batch.
        store.delete(names.payload)
        parallel_map(store.delete, found, threads=store.concurrency)
        if all_of_it:
            store.delete(names.handle)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the manifest alone, without connections and collected values."""
        return _unpickled, (self._manifest, self._stored)

    def __repr__(self) -> str:
        """Return one line, as of the last look: this makes no request."""
        return f"<BatchHandle {self.group_id}: {summary(self._manifest, self._known.last)}>"

    def _repr_html_(self) -> str:
        """Return a grid of the inputs by status, for notebooks."""
        with suppress(KineticError):
            self._states.look()
        return grid(self._manifest, self._states.last, repr(self))


class Results:
    """An iterable of pairs of an input's index and its value, for `for` and for `async for`."""

    def __init__(self, begin: Callable[[], Iterator[tuple[int, Any]]]) -> None:
        self._begin = begin

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        return self._begin()

    async def __aiter__(self) -> AsyncIterator[tuple[int, Any]]:
        iterator, stop = self._begin(), threading.Event()

        def take() -> list[tuple[int, Any]]:
            with stoppable(stop.is_set):
                return [*islice(iterator, 1)]

        try:
            while found := await in_thread(take, "kinetic-results"):
                yield found[0]
        finally:
            stop.set()


def _unpickled(manifest: GroupManifest, stored: bytes | None) -> BatchHandle:
    from kinetic.settings.settings import Settings

    place = parse_location(manifest.job_record.bucket_name)
    return _connected(manifest, stored, place, Settings.from_environment())


def _connected(
    manifest: GroupManifest, stored: bytes | None, place: Location, settings: Settings
) -> BatchHandle:
    """Return the handle of *manifest*, whose objects are at *place*."""
    record = manifest.job_record
    services = connect(record.backend, Target.of(record), place, settings)
    return BatchHandle(manifest, services, stored=stored)


def _outages(group_id: str, *, reached: bool = False) -> Outages:
    """Return the outages that a wait for a batch outlasts; *reached*: its store has responded before."""
    outages = Outages(
        f"The wait for batch {group_id} goes on.",
        lambda error, reached: reached and isinstance(error, PASSING),
        warn=warn_caller,
    )
    outages.reached = reached
    return outages


def attach_batch(
    group_id: str,
    project: str | None = None,
    cluster: str | None = None,
    poll_interval: float = 10.0,  # noqa: ARG001 - a batch is recorded at once, with all of its inputs
    poll_timeout: float | None = None,  # noqa: ARG001
) -> BatchHandle:
    """Return the handle of a batch that any process, on any machine, has submitted.

    Args:
        group_id: The batch's identifier.
        project: GCP project; falls back to KINETIC_PROJECT, the active profile, then GOOGLE_CLOUD_PROJECT.
        cluster: GKE cluster; falls back to KINETIC_CLUSTER, the active profile, then the default.
        poll_interval: Has no effect: a batch is recorded at once, with all of its inputs.
        poll_timeout: Has no effect, for the same reason.

    Raises:
        JobNotFoundError: None of the stores has the batch; the message names them all.
        StoreUnavailableError: One of them could not be reached, and the others do not have it.
    """
    from kinetic.settings.settings import Settings

    return batch_in(group_id, Settings.from_environment(project=project, cluster=cluster))


def batch_in(group_id: str, settings: Settings) -> BatchHandle:
    """Return the handle of a batch in one of the stores of *settings*."""
    from kinetic.jobs.discover import find_batch

    store, found = find_batch(group_id, settings)
    return _connected(found.record, found.data, store.location, settings)
