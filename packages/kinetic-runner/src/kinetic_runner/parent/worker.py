"""A worker of a batch: it runs a range of inputs, one after another, each in a child of its own."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from time import monotonic, time
from typing import Final

from kinetic_payload.errors import (
    InvalidRequestError,
    KineticError,
    ObjectNotFoundError,
    RecordError,
    SignatureError,
)
from kinetic_payload.layout import (
    EXIT_BAD_NODE,
    EXIT_NOT_PREPARED,
    EXIT_SUCCESS,
    EXIT_TERMINATED,
    Env,
    JobObjects,
)
from kinetic_payload.records.batch import GroupManifest, manifest_from
from kinetic_payload.records.encode import encode, fields_of
from kinetic_payload.records.outcome import FinalStatus, Outcome
from kinetic_payload.records.signing import Signer
from kinetic_payload.records.storage import read_verified, write_once
from kinetic_runner.command_line import Arguments
from kinetic_runner.parent.attempt import Attempt, read_job, signing_key
from kinetic_runner.parent.child_process import Child
from kinetic_runner.parent.children import Children
from kinetic_runner.parent.signals import SelfPipe
from kinetic_runner.store_retries import retry
from kinetic_runner.task import Given

_LOADING_SECONDS: Final = 600.0
"""Seconds for which a worker waits for the one that loads data of the Hub for all."""
_LOADING_LOOK: Final = 2.0
"""Seconds between two looks whether that one has loaded them."""
_LOOK_EVERY: Final = 5.0
"""Seconds between two looks whether a running input is still wanted."""


def run_worker(
    arguments: Arguments,
    environment: Mapping[str, str],
    children: Children,
    signals: SelfPipe,
) -> int:
    """Run the inputs of this worker that have no outcome, each in one of *children*; return the exit code.

    The function of an input that fails is retried here, at once.

    Raises:
        KineticError: The batch or an input cannot be read, or an attempt cannot be claimed.
    """
    worker = _Worker(arguments, environment, signals)
    indexes = list(worker.inputs_of(worker.number))
    for index in indexes:
        on_end = partial(children.used, more=index != indexes[-1])
        while True:
            if worker.batch_has_ended():
                return EXIT_SUCCESS
            child = children.next()
            code, ended = worker.run(index, child, on_end)
            if signals.terminated or worker.orphaned:
                return EXIT_TERMINATED
            if code == EXIT_BAD_NODE and not ended:
                return code  # Another node may do better.
            ran = not children.is_waiting(child)
            if worker.hosts > 1 and (
                (code != EXIT_SUCCESS and ran)
                or (code == EXIT_TERMINATED and worker.batch_has_ended())
            ):
                # Another host may wait for this one: all of them start again.
                return EXIT_TERMINATED
            if ended:
                break
    return EXIT_SUCCESS


def _status_in(outcome: bytes | None) -> FinalStatus | None:
    """Return the status in the *outcome* of a batch; None if it has none."""
    return None if outcome is None else fields_of(outcome).get("status")


class _Worker:
    def __init__(
        self, arguments: Arguments, environment: Mapping[str, str], signals: SelfPipe
    ) -> None:
        self._arguments = arguments
        self._environment = environment
        self._signals = signals
        self._signer = Signer(signing_key(environment))
        self._group = JobObjects(arguments.job)
        self._store, record, data = read_job(arguments, pause=signals.wait)
        self._manifest: GroupManifest = manifest_from(fields_of(data), record)
        self.hosts = self._manifest.job_record.hosts
        """The number of hosts, which run the same inputs together."""
        self.orphaned = False
        """Whether an attempt was ended by nothing that this process was asked for."""
        self._loaded: dict[str, str] = {}
        """Digests of data of the Hub that are in the store, by key."""
        text = environment.get(Env.BATCH_WORKER, "")
        if not text.isdigit():
            raise InvalidRequestError(f"{Env.BATCH_WORKER} is {text!r}; a number was expected.")
        workers = environment.get(Env.BATCH_WORKERS)
        started = [int(number) for number in workers.split(",")] if workers else []
        self.number = started[int(text)] if started else int(text)
        self._first_worker = started[0] if started else 0
        """The number of the first worker that was started with this one."""
        self._load_until = monotonic() + _LOADING_SECONDS
        """Until when to wait for the first worker to load data of the Hub."""
        self._heads: dict[int, list[tuple[int, str, list[str]]]] = {}
        """By the first index of a pack: the size and the digest of each input, and the keys of its `Data`."""

    def inputs_of(self, worker: int) -> Iterator[int]:
        """Iterate over the inputs of a *worker* that were submitted."""
        manifest = self._manifest
        first = worker * manifest.per_worker
        for index in range(first, min(first + manifest.per_worker, manifest.total_expected)):
            if str(index) not in manifest.failed:
                yield index

    def _find_loaded(self) -> None:
        """Look which data of the Hub are in the store; wait for the first worker, which loads them for all.

        Not longer than that worker runs its first input, nor than `_LOADING_SECONDS`.
        """
        first_index = next(self.inputs_of(self._first_worker), None)
        while len(self._loaded) < len(self._manifest.hub_data):
            # In this order: what that input has loaded is there once it has an outcome.
            over = (
                self.number == self._first_worker
                or first_index is None
                or monotonic() >= self._load_until
                or bool(self._retry(partial(self._read_outcome, self._job(first_index))))
            )
            for key in self._manifest.hub_data:
                name = self._group.loaded(key)
                data = self._retry(partial(read_verified, self._store, self._signer, name))
                if data is not None:
                    self._loaded[key] = str(fields_of(data)["digest"])
            if over or self.batch_has_ended() or self._signals.wait(_LOADING_LOOK):
                return

    def _note_loaded(self, key: str, digest: str) -> None:
        if key in self._manifest.hub_data:
            data = json.dumps({"digest": digest}).encode()
            with suppress(KineticError):  # Then each worker loads them.
                self._retry(
                    lambda: write_once(self._store, self._signer, self._group.loaded(key), data)
                )

    def batch_has_ended(self) -> bool:
        """Return whether the batch was stopped: then no further input is started."""
        found = self._retry(partial(self._read_outcome, self._group))
        return self._manifest.next_step(_status_in(found)) != "go on"

    def _job(self, index: int) -> JobObjects:
        return JobObjects(self._manifest.job_id(index))

    def _read_outcome(self, job: JobObjects) -> bytes | None:
        """Return the outcome of *job*; None if the job has not written one."""
        return read_verified(self._store, self._signer, job.outcome)

    def _retry(self, action: Callable[[], bytes | None]) -> bytes | None:
        seconds = self._arguments.report_seconds
        return retry(action, seconds=seconds, pause=self._signals.wait)

    def run(self, index: int, child: Child, on_end: Callable[[], object]) -> tuple[int, bool]:
        """Make one attempt at the input *index* in *child*; return its exit code, and whether it is the last one.

        *on_end* is called once the child has ended; it is not if the input has an outcome already.
        """
        record = self._manifest.member(index)
        try:
            self._find_loaded()
            given = self._given(index)
        except (RecordError, ObjectNotFoundError) as error:
            self._write_failure(self._job(index), error.message)
            return EXIT_NOT_PREPARED, True
        attempt = Attempt(
            replace(self._arguments, job=record.job_id),
            self._environment,
            child,
            self._signals,
            None,
            member=(record, given),
            on_end=on_end,
            on_loaded=self._note_loaded,
        )
        with self._watched(index, attempt):
            code, ended = attempt.run()
            # The supervisor is gone: each further attempt would end at once.
            self.orphaned = code == EXIT_TERMINATED and not self._signals.stop_requested
        if ended and code not in (EXIT_SUCCESS, EXIT_TERMINATED):
            self._after_failure(index)
        return code, ended

    def _given(self, index: int) -> Given:
        """Return where the input is in the store.

        Raises:
            RecordError: The object with the input is not the one that was submitted.
        """
        manifest = self._manifest
        number, pack = next(
            (number, pack)
            for number, pack in enumerate(manifest.inputs)
            if pack.first <= index < pack.first + pack.count
        )
        name = self._group.inputs(number)
        if pack.first not in self._heads:
            found = self._retry(partial(self._store.read, name, end=pack.head)) or b""
            if hashlib.sha256(found).hexdigest() != pack.digest:
                raise RecordError(
                    f"{self._store.location}/{name} does not have the inputs that were submitted.",
                    hint="It was changed in the store. Find out who can write there.",
                )
            self._heads[pack.first] = [
                (int(size), str(digest), list(keys)) for size, digest, keys in json.loads(found)
            ]
        head = self._heads[pack.first]
        start = pack.head + sum(size for size, *_ in head[: index - pack.first])
        size, digest, data = head[index - pack.first]
        output = manifest.member(index).output_dir
        missing = [key for key in manifest.hub_data if key not in self._loaded]
        return Given(
            index=index,
            of=manifest.total_expected,
            name=name,
            start=start,
            end=start + size,
            digest=digest,
            data=data,
            call_data=manifest.call_data,
            output_dir=output or f"{self._arguments.store}/{self._job(index).outputs.rstrip('/')}",
            loaded=self._loaded,
            shares=missing if self.number == self._first_worker else [],
        )

    def _after_failure(self, index: int) -> None:
        """End the batch if this failure is one too many: then no further input is started."""
        manifest = self._manifest
        failed = len(manifest.failed) + 1
        if manifest.max_failures is not None and not manifest.fail_fast:
            failed += self._failures_besides(index)
        if manifest.next_step(None, failed=failed) == "stop":
            limit = (
                "fail_fast=True" if manifest.fail_fast else f"max_failures={manifest.max_failures}"
            )
            why = f"Input {index} failed, and with {limit} no further input was started."
            self._write_failure(self._group, why)

    def _failures_besides(self, index: int) -> int:
        own, failed = self._job(index).outcome, 0
        for info, data in self._store.records(self._group.members):
            if info.name == own or not info.name.endswith("/outcome.json"):
                continue
            with suppress(SignatureError, RecordError):
                if data is None:
                    data = self._retry(partial(read_verified, self._store, self._signer, info.name))
                else:
                    self._signer.verify(data, info.name)
                failed += _status_in(data) == "failed"
        return failed

    def _write_failure(self, job: JobObjects, message: str) -> None:
        now = time()
        outcome = Outcome(job_id=job.job_id, status="failed", message=message, written_at=now)
        data = encode(outcome)
        self._retry(lambda: write_once(self._store, self._signer, job.outcome, data))

    @contextmanager
    def _watched(self, index: int, attempt: Attempt) -> Iterator[None]:
        """Look, from time to time, whether the input or the batch was cancelled; then stop the input."""
        over = threading.Event()

        def look() -> None:
            while not over.wait(_LOOK_EVERY):
                try:
                    stopped = _status_in(self._read_outcome(self._group))
                    # A host that waits for others does not run yet, and they may have left.
                    begun = self.hosts == 1 or attempt.has_begun
                    step = self._manifest.next_step(stopped, running=begun)
                    ended = self._read_outcome(self._job(index)) is not None
                except KineticError:
                    continue  # The store may be away for long; the attempt itself reports that.
                if not over.is_set():
                    self._signals.cancelled = ended or step == "end"

        thread = threading.Thread(target=look, name="wanted", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(_LOOK_EVERY)
            self._signals.cancelled = False
