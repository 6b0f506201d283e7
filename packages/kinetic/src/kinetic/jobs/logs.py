"""The log of a job: iterate over its lines, or print them in a thread during a wait."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, takewhile
from typing import Literal

from kinetic.backends.backend import LogLine, never
from kinetic.jobs.outages import PASSING, Outages, patiently
from kinetic.jobs.services import Services
from kinetic.jobs.stored_logs import attempt_separator, known_attempts, stored_lines
from kinetic.log_parts import joined
from kinetic.user_warnings import logged_to
from kinetic_payload.errors import InvalidRequestError
from kinetic_payload.records.job import JobRecord

log = logging.getLogger("kinetic")


_LAST_LINES = 10.0
"""Seconds to wait for each further line of the log once the job has an outcome."""


class LiveLog:
    """Passes a running job's log lines to *emit*, from a thread of its own, within the block."""

    def __init__(
        self,
        record: JobRecord,
        services: Services,
        emit: Callable[[LogLine], None],
        warn: Callable[[str], None] = log.warning,
        *,
        idle_seconds: float = _LAST_LINES,
    ) -> None:
        self._job_id = record.job_id
        self._warn = warn
        self._idle_seconds = idle_seconds
        self._emitted = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(
            target=self._run, args=(record, services, emit), daemon=True, name="kinetic-log"
        )

    def __enter__(self) -> LiveLog:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is not None:
            self._stopped.set()
            return
        # The job has ended, so the log ends after its last line.
        if not ends(self._thread, lambda: self._emitted, idle_seconds=self._idle_seconds):
            self._warn(
                f"The rest of the log did not arrive in time. Print it with: kinetic jobs logs {self._job_id}"
            )
        self._stopped.set()

    def _run(self, record: JobRecord, services: Services, emit: Callable[[LogLine], None]) -> None:
        def follow() -> None:
            stopped = self._stopped.is_set
            for line in log_lines(record, services, follow=True, stopped=stopped, pieces=True):
                if self._stopped.is_set():
                    return
                emit(line)
                self._emitted += 1

        # The wait beside it reports an outage, and decides whether it ends the wait. After the first line,
        # backends outlast outages by themselves.
        outages = Outages(
            "",
            lambda error, _: isinstance(error, PASSING) and not self._emitted,
            warn=lambda _: None,
            pause=self._stopped.wait,
        )
        try:
            patiently(follow, outages, stopped=self._stopped.is_set)
        except Exception as error:  # noqa: BLE001 - a lost live log must not cost the result
            if not self._stopped.is_set():
                self._warn(f"The live log of {record.job_id} broke off: {error}")


def ends(thread: threading.Thread, done: Callable[[], int], *, idle_seconds: float) -> bool:
    """Wait for *thread* to end while *done* grows every *idle_seconds*; return whether it ended."""
    before = None
    while thread.is_alive() and before != (before := done()):
        thread.join(idle_seconds)
    return not thread.is_alive()


def followed_lines(
    record: JobRecord,
    services: Services,
    *,
    tail: int | None = None,
    attempt: int | Literal["all"] | None = None,
    pieces: bool = False,
) -> Iterator[LogLine]:
    """Iterate over the job's log until it ends, as `log_lines` does; print the warnings about it to stderr."""
    from kinetic.console import Console

    with logged_to(Console.of_this_process().note, unless_handled=True):
        yield from log_lines(
            record, services, follow=True, tail=tail, attempt=attempt, pieces=pieces
        )


def log_lines(
    record: JobRecord,
    services: Services,
    *,
    follow: bool = False,
    tail: int | None = None,
    attempt: int | Literal["all"] | None = None,
    stopped: Callable[[], bool] = never,
    pieces: bool = False,
) -> Iterator[LogLine]:
    """Iterate over the job's log; each line has the number of the job's hosts. With *pieces*, lines come in parts.

    Without *attempt*, it is the log of the latest one. If there were earlier ones, its first line says how to
    print theirs.

    Raises:
        InvalidRequestError: There is no log of *attempt*.
    """
    live = services.backend.log_lines(record, follow=follow, tail=tail, stopped=stopped)
    lines = live
    if attempt is not None:
        job = services.store, record, services.verify
        known = known_attempts(*job) or [1]

        def lines_of(number: int) -> Iterator[LogLine]:
            stored = stored_lines(job[0], record.job_id, number, tail=tail, most=record.hosts)
            if number < known[-1]:
                return stored
            found = live if attempt == "all" else takewhile(lambda x: x.attempt == number, live)
            first = next(found, None)
            # Another attempt may have begun meanwhile.
            before = stored if first is None or first.attempt > number else ()
            return chain(before, filter(None, [first]), found)

        separator = partial(attempt_separator, *job)
        lines = lines_of_attempts(record.job_id, known, attempt, lines_of, separator)
    first_line = attempt is None and tail is None
    for line in lines if pieces else joined(lines):
        if first_line and line.attempt > 1:
            command = f"kinetic jobs logs {record.job_id} --attempt all"
            text = f"[kinetic] This is attempt {line.attempt}. To print the logs of all attempts: {command}"
            yield LogLine(text, 0, line.attempt, record.hosts, "stderr")
        first_line = False
        yield replace(line, hosts=record.hosts) if record.hosts > 1 else line


def lines_of_attempts(
    job_id: str,
    known: Sequence[int],
    attempt: int | Literal["all"],
    lines_of: Callable[[int], Iterator[LogLine]],
    separator: Callable[[int, int], LogLine],
) -> Iterator[LogLine]:
    """Iterate over the log of *attempt*, one of the *known* ones, or of all of them with lines between them.

    Raises:
        InvalidRequestError: It is not known.
    """
    chosen = known if attempt == "all" else [attempt]
    if attempt != "all" and attempt not in known:
        raise InvalidRequestError(
            f"Job {job_id} has no log of attempt {attempt!r}.",
            hint=f"It has logs of: {', '.join(map(str, known))}, all.",
        )
    for before, number in zip([0, *chosen], chosen, strict=False):
        if before:
            yield separator(before, number)
        yield from lines_of(number)
