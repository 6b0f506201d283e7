"""Kills of one process of a job at one moment, and whether what follows is right."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from tests.soak.places import (
    Place,
    Submitter,
    ended_processes,
    is_right,
    print_failure,
    supervisor_of,
)

import kinetic
from kinetic.errors import JobFailedError
from kinetic.job_status import JobStatus
from kinetic.testing import eventually
from kinetic_payload.layout import JobObjects

STORES = {"folder": ["folder"], "bucket": ["bucket"], "both": ["folder", "bucket"]}
FUNCTION_ENDS = "within 12 ms of the function's end"
FUNCTION_ENDED = "after the function"
OF_JOB = (
    "at random",
    "in the function",
    FUNCTION_ENDS,
    FUNCTION_ENDED,
    "while the value is stored",
    "before the report",
    "between report and outcome",
)
MOMENTS: dict[str, tuple[str, ...]] = {
    "submitter": (
        "at random",
        "before the record",
        "after the record",
        "in the function",
        "between report and outcome",
        "during its clean-up",
    ),
    "supervisor": OF_JOB,
    "runner": OF_JOB,
    "child": ("at random", "in the function", FUNCTION_ENDS, "while the value is stored"),
}
WRITES = {
    "before the record": ("handle.json", "payload.pkl"),
    "while the value is stored": ("host-0.pkl", "host-0.pkl"),
    "before the report": ("host-0.json", "host-0.pkl"),
    "between report and outcome": ("outcome.json", "host-0.json"),
}
"""The object whose first write a bucket holds, and fails once the victim is dead; and, in a folder, where
nothing can be held, the object after which the victim is killed."""
KEPT = (FUNCTION_ENDED, *list(WRITES)[1:])
"""When a supervisor may be killed without any loss: the function has ended, and its runner lives."""
SECONDS = 150.0
"""For a job to end after its kill, on a busy machine."""


@dataclass(frozen=True)
class Kill:
    """What is killed, when, in which job; the same for the same seed and number."""

    number: int
    store: str
    victim: str
    moment: str
    hosts: int
    host: int
    retries: int
    size: int
    seconds: float
    delay: float

    def __str__(self) -> str:
        job = f"{self.hosts} hosts, retries={self.retries}, {self.size} bytes"
        return f"{self.store}: {self.victim} of host {self.host} {self.moment} + {self.delay:.4f} s ({job})"


def draw(seed: int, number: int, *, stores: list[str], victims: list[str]) -> Kill:
    """Choose the kill of a round; all moments of all victims in turn, the rest at random."""
    rng = random.Random(f"{seed}-{number}")
    pairs = [(victim, moment) for victim in victims for moment in MOMENTS[victim]]
    victim, moment = pairs[(number // len(stores)) % len(pairs)]
    hosts = 4 if rng.random() < 0.15 else 1
    delay = 0.0
    if moment == "at random":
        # Of the life of a submitter, or of a job.
        delay = rng.uniform(0, 2.5 if victim == "submitter" else 1.2)
    elif moment in (FUNCTION_ENDS, "during its clean-up", "after the record"):
        delay = rng.uniform(0, 0.012)
    # In a folder the value is the object before the report: a large one.
    large = moment in ("while the value is stored", "before the report") or rng.random() < 0.3
    return Kill(
        number=number,
        store=stores[number % len(stores)],
        victim=victim,
        moment=moment,
        hosts=hosts,
        host=rng.randrange(hosts),
        retries=rng.choice([0, 0, 1]),
        size=3_000_000 if large else 1000,
        seconds=rng.uniform(0, 0.5) if moment == "at random" else 0.05,
        delay=delay,
    )


@dataclass
class Round:
    """One kill, in a place, and how it ended."""

    place: Place
    kill: Kill
    job_id: str = ""
    ending: str = ""
    killed: bool = True
    problems: list[str] = field(default_factory=list)
    kinds: set[str] = field(default_factory=set)
    """What kinds of problems there are: `lost`, `wrong`, `processes` and `orphans` are counted."""

    def __post_init__(self) -> None:
        self.marks = self.place.folder / f"marks-{self.kill.number}-{time.time_ns()}"

    def fail(self, problem: str, kind: str = "") -> None:
        self.problems.append(problem)
        self.kinds.add(kind)

    def run(self) -> None:
        """Submit, kill, and check all that is left of the job."""
        kill = self.kill
        self.marks.mkdir()
        plan = {
            "number": kill.number, "hosts": kill.hosts, "retries": kill.retries, "size": kill.size,
            "seconds": 3.0 if kill.moment == "in the function" else kill.seconds,
            "stopping": kill.moment == FUNCTION_ENDED, "marks": str(self.marks),
            "waiting": kill.victim == "submitter", "window": 0,
        }  # fmt: skip
        with self._held_write() as held:
            submitter = self.place.submit(plan)
            try:
                if kill.victim == "submitter":
                    self._kill_submitter(submitter, held)
                else:
                    self._kill_other(submitter, held)
            except BaseException:
                submitter.process.kill()
                raise
        if not submitter.end(60):
            self.fail("the submitter did not end")
        self._check(submitter)

    @contextmanager
    def _held_write(self) -> Iterator[Callable[[], object]]:
        """Let a bucket hold the write of this moment; provide what tells whether the moment has come."""
        held, before = WRITES.get(self.kill.moment, ("", ""))
        server = self.place.server
        if server is None or not held:
            yield lambda: any(name.endswith(f"/{before}") for name in self.place.of_jobs())
            return
        fault = server.faults.add(method="POST", name=f"*/{held}", times=1, held=True, status=503)
        try:
            yield lambda: fault.hits
        finally:
            fault.release()

    def _marked(self, what: str) -> bool:
        return len(list(self.marks.glob(f"{what}-1-*"))) == self.kill.hosts

    def _kill_submitter(self, submitter: Submitter, held: Callable[[], object]) -> None:
        has_come = {
            "after the record": lambda: any(
                name.endswith("/handle.json") for name in self.place.of_jobs()
            ),
            "in the function": lambda: self._marked("began"),
            "during its clean-up": lambda: submitter.message("right") is not None,
        }.get(self.kill.moment, held)
        if self.kill.moment != "at random":
            self._until(lambda: submitter.process.poll() is not None or has_come())
        _wait(self.kill.delay)
        self.killed = submitter.process.poll() is None
        submitter.process.kill()
        submitter.process.wait()

    def _kill_other(self, submitter: Submitter, held: Callable[[], object]) -> None:
        kill = self.kill
        self.job_id = eventually(lambda: submitter.message("job") or submitter.message("error"))
        supervisor: psutil.Process | None = None
        while supervisor is None:
            supervisor = supervisor_of(self.job_id)
            if supervisor is None and self.place.has(JobObjects(self.job_id).outcome):
                self.killed = False
                return
        runners: list[psutil.Process] = []

        def has_ended() -> bool:
            runners[:] = supervisor.children()
            children = [child for runner in runners for child in runner.children()]
            return len(children) == kill.hosts and all(
                child.status() == psutil.STATUS_ZOMBIE for child in children
            )

        has_come = {
            "in the function": lambda: self._marked("began"),
            FUNCTION_ENDS: lambda: self._marked("ended"),
            FUNCTION_ENDED: has_ended,
        }.get(kill.moment, held)
        victim: psutil.Process | None = None
        try:
            if kill.moment != "at random":
                # Look for the victim before the moment where nothing is held: it takes longer than that.
                eventually(lambda: self._marked("began") or not supervisor.is_running())
                runners[:] = supervisor.children()
                victim = self._victim(supervisor, runners)
                self._until(lambda: not supervisor.is_running() or has_come())
            _wait(kill.delay)
            if victim is None:
                runners[:] = supervisor.children()
                victim = self._victim(supervisor, runners)
            self.killed = victim is not None and victim.is_running()
            if victim is not None and self.killed:
                victim.kill()
        except psutil.NoSuchProcess:
            self.killed = False
        for runner in runners:
            with suppress(psutil.NoSuchProcess):
                runner.resume()

    def _victim(
        self, supervisor: psutil.Process, runners: list[psutil.Process]
    ) -> psutil.Process | None:
        if self.kill.victim == "supervisor":
            return supervisor
        if self.kill.host >= len(runners):
            return None
        runner = sorted(runners, key=lambda one: one.pid)[self.kill.host]
        return runner if self.kill.victim == "runner" else next(iter(runner.children()), None)

    def _until(self, has_come: Callable[[], object]) -> None:
        deadline = time.monotonic() + 60
        while not has_come():
            if time.monotonic() > deadline:
                self.fail("the moment did not come")
                return
            time.sleep(0.0005)  # noqa: TID251

    def _check(self, submitter: Submitter) -> None:
        """Check all that there is of the job."""
        if (error := submitter.message("error")) is not None:
            self.fail(f"the submitter raised {error}: {submitter.messages}")
        if submitter.message("right") is False:
            self.fail("the submitter got a wrong value", "wrong")
        with self.place.entered():
            found = self.place.job_ids()
            with_record = [one for one in found if self.place.has(JobObjects(one).handle)]
            for job_id in with_record:
                self._check_job(job_id)
            if not with_record:
                right = submitter.message("right")
                self.ending = "nothing" if right is None else "value, cleaned up"
                if self.kill.victim != "submitter":
                    self.fail("no record of the job is left", "lost")
            for job_id in found:
                if left := ended_processes(job_id):
                    self.fail(left, "processes")
                if job_id in with_record:
                    kinetic.attach(job_id).cleanup()
            if orphans := self.place.left():
                self.fail(f"left a day later: {orphans}", "orphans")

    def _check_job(self, job_id: str) -> None:
        self.job_id = job_id
        handle = kinetic.attach(job_id)
        reason, value, expected = "", None, JobStatus.FAILED
        try:
            value = handle.result(timeout=SECONDS, cleanup=False)
            self.ending, expected = "value", JobStatus.SUCCEEDED
        except JobFailedError as error:
            self.ending, reason = "failed", str(error)
        except Exception as error:
            self.ending, reason = type(error).__name__, str(error)
            self.fail(f"{type(error).__name__}: {error}")
        outcome, status = handle.outcome(), handle.status()
        if status is not expected:
            self.fail(f"the end is {self.ending!r}, but the status is {status}")
        if self.ending == "value":
            if not is_right(value, self.kill.number, self.kill.size):
                self.fail(f"a wrong value: {value!r:.200}", "wrong")
            return
        complete = [
            f"all hosts of attempt {number} reported success"
            for number, reports in outcome.attempts.items()
            if len(reports) == self.kill.hosts and all(report.succeeded for report in reports)
        ]
        if why := (complete or [self._promise()])[0]:
            self.fail(f"no value, although {why}: {reason}", "lost")

    def _promise(self) -> str:
        """Return why there must be a value even where not all hosts have reported one; or nothing."""
        kill = self.kill
        if not self.killed:
            return "nothing was killed"
        if kill.victim == "submitter":
            return "the job had begun" if any(self.marks.iterdir()) else ""
        if kill.victim == "supervisor":
            exact = kill.store == "bucket" or kill.moment == FUNCTION_ENDED
            # The functions of several hosts may not all have ended at the other moments.
            ended = kill.hosts == 1 or kill.moment == FUNCTION_ENDED
            return "the function had ended" if exact and ended and kill.moment in KEPT else ""
        return "there was another attempt" if kill.retries else ""


def _wait(seconds: float) -> None:
    until = time.perf_counter() + seconds
    while (left := until - time.perf_counter()) > 0:
        time.sleep(left if left > 0.02 else 0)  # noqa: TID251


def _end_all(place: Place) -> None:
    """Kill what a failed round left running."""
    for job_id in place.job_ids():
        if (supervisor := supervisor_of(job_id)) is not None:
            supervisor.kill()
        ended_processes(job_id, 0.1)


def run(given: argparse.Namespace) -> int:
    """Run the rounds that were asked for, print a table, return whether any failed."""
    victims = given.victim or list(MOMENTS)
    chosen = "".join(f" --victim {victim}" for victim in given.victim or ())
    rounds: list[Round] = []
    began = time.monotonic()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="soak-")))
        places = {
            kind: stack.enter_context(Place(folder / kind, kind)) for kind in STORES[given.store]
        }
        for number in range(given.first, given.first + given.rounds):
            if time.monotonic() - began > 60 * given.minutes:
                break
            kill = draw(given.seed, number, stores=list(places), victims=victims)
            one = Round(places[kill.store], kill)
            rounds.append(one)
            try:
                one.run()
            except Exception as error:
                one.fail(f"{type(error).__name__}: {error}")
            late = "" if one.killed else " (it had ended before)"
            print(f"{number} {kill} → {one.ending}{late}", file=sys.stderr, flush=True)
            if one.problems:
                _end_all(one.place)
                options = f"--seed {given.seed} --store {given.store}{chosen}"
                print_failure(one.problems, f"{kill} {one.job_id}", f"kills {options}", number)
                # The next round must not see what a failed one left.
                new = Place(folder / f"{kill.store}-{number + 1}", kill.store)
                places[kill.store] = stack.enter_context(new)
    print(_table(rounds))
    print(f"{len(rounds)} rounds in {time.monotonic() - began:.0f} s")
    return any(one.problems for one in rounds)


def _table(rounds: list[Round]) -> str:
    lines = [
        "| killed | when | kills | value | failed, said so | nothing, nor left a day later | lost | wrong | processes left | orphans left |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    keys = dict.fromkeys((one.kill.victim, one.kill.moment) for one in rounds)
    for key in [*keys, ("all", "")]:
        those = [one for one in rounds if key in ((one.kill.victim, one.kill.moment), ("all", ""))]
        endings = Counter(one.ending.partition(",")[0] for one in those if one.killed)
        kinds = Counter(kind for one in those for kind in one.kinds)
        figures = [sum(one.killed for one in those)]
        figures += [endings[ending] for ending in ("value", "failed", "nothing")]
        figures += [kinds[kind] for kind in ("lost", "wrong", "processes", "orphans")]
        lines.append(f"| {key[0]} | {key[1]} | {' | '.join(map(str, figures))} |")
    return "\n".join(lines)
