"""Kills of one process of a job at one moment, and whether what follows is the truth."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import psutil
from tests.soak.places import Place, Submitter, ended_processes, is_right, supervisor_of

import kinetic
from kinetic.errors import JobFailedError
from kinetic.job_status import JobStatus
from kinetic.testing import eventually, kill_hard
from kinetic_payload.layout import JobObjects

MOMENTS: dict[str, tuple[str, ...]] = {
    "submitter": (
        "at random",
        "before the record",
        "after the record",
        "in the function",
        "between report and outcome",
        "during its clean-up",
    ),
    "supervisor": (
        "at random",
        "in the function",
        "within 12 ms of the function's end",
        "after the function",
        "while the value is stored",
        "before the report",
        "between report and outcome",
    ),
    "runner": (
        "at random",
        "in the function",
        "within 12 ms of the function's end",
        "after the function",
        "while the value is stored",
        "before the report",
        "between report and outcome",
    ),
    "child": (
        "at random",
        "in the function",
        "within 12 ms of the function's end",
        "while the value is stored",
    ),
}
"""In a folder nothing can be held: there a moment is when what comes before it was seen."""

HELD = {
    "before the record": "handle.json",
    "while the value is stored": "host-0.pkl",
    "before the report": "host-0.json",
    "between report and outcome": "outcome.json",
}
"""The object whose first write a bucket holds, and fails once the victim is dead."""

SEEN = {
    "before the record": "payload.pkl",
    "while the value is stored": "host-0.pkl",
    "before the report": "host-0.pkl",
    "between report and outcome": "host-0.json",
}
"""After which object in a folder the victim is killed."""

KEPT = frozenset(
    {
        "after the function",
        "while the value is stored",
        "before the report",
        "between report and outcome",
    }
)
"""When a supervisor may die without any loss: the function has ended, and its runner lives."""

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


@dataclass
class Told:
    """How a round ended."""

    ending: str = ""
    killed: bool = True
    problems: list[str] = field(default_factory=list)
    lost: bool = False
    wrong: bool = False
    processes: bool = False
    orphans: bool = False
    job_id: str = ""


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
    elif moment in (
        "within 12 ms of the function's end",
        "during its clean-up",
        "after the record",
    ):
        delay = rng.uniform(0, 0.012)
    # What a folder is seen to hold before the report is the value: a large one.
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


class Round:
    """One kill, in a place."""

    def __init__(self, place: Place, kill: Kill) -> None:
        self.place = place
        self.kill = kill
        self.told = Told()
        self.marks = place.folder / f"marks-{kill.number}-{time.time_ns()}"
        self._release: Callable[[], None] = lambda: None

    def run(self) -> Told:
        """Submit, kill, and look."""
        kill = self.kill
        self.marks.mkdir()
        by_submitter = kill.victim == "submitter"
        stopping = kill.moment == "after the function"
        plan = {
            "number": kill.number, "hosts": kill.hosts, "retries": kill.retries, "size": kill.size,
            "seconds": 3.0 if kill.moment == "in the function" else kill.seconds,
            "stopping": stopping, "marks": str(self.marks), "waiting": by_submitter, "window": 0,
        }  # fmt: skip
        hits = self._hold()
        submitter = self.place.submit(plan)
        try:
            if by_submitter:
                self._kill_submitter(submitter, hits)
            else:
                self._kill_other(submitter, hits)
        finally:
            self._release()
            ended = submitter.end(60)
        if not ended:
            self.told.problems.append("the submitter did not end")
        self._look(submitter)
        return self.told

    def _hold(self) -> Callable[[], object]:
        """Have a bucket hold the write of this moment; return what tells that the moment has come."""
        moment, server = self.kill.moment, self.place.server
        if moment not in HELD:
            return lambda: True
        if server is None:
            return lambda: any(name.endswith(f"/{SEEN[moment]}") for name in self.place.of_jobs())
        fault = server.faults.add(
            method="POST", name=f"*/{HELD[moment]}", times=1, held=True, status=503
        )

        def release() -> None:
            fault.release()

        self._release = release
        return lambda: fault.hits

    def _marked(self, what: str) -> bool:
        return len(list(self.marks.glob(f"{what}-1-*"))) == self.kill.hosts

    def _kill_submitter(self, submitter: Submitter, hits: Callable[[], object]) -> None:
        moment = self.kill.moment

        def has_come() -> object:
            if submitter.process.poll() is not None:
                return True
            if moment == "after the record":
                return any(name.endswith("/handle.json") for name in self.place.of_jobs())
            if moment == "in the function":
                return self._marked("began")
            if moment == "during its clean-up":
                return submitter.heard("right") is not None
            return hits()

        if moment != "at random":
            self._until(has_come)
        _wait(self.kill.delay)
        self.told.killed = submitter.process.poll() is None
        submitter.process.kill()
        submitter.process.wait()

    def _kill_other(self, submitter: Submitter, hits: Callable[[], object]) -> None:
        kill = self.kill
        job_id = eventually(lambda: submitter.heard("job") or submitter.heard("error"))
        self.told.job_id = job_id
        supervisor: psutil.Process | None = None
        names = JobObjects(job_id)
        while supervisor is None:
            supervisor = supervisor_of(job_id)
            if supervisor is None and self.place.has(names.outcome):
                self.told.killed = False
                return
        runners: list[psutil.Process] = []

        def inner() -> list[psutil.Process]:
            return [child for runner in runners for child in runner.children()]

        def has_come() -> object:
            if not supervisor.is_running():
                return True
            if kill.moment == "in the function":
                return self._marked("began")
            if kill.moment.startswith("within"):
                return self._marked("ended")
            if kill.moment == "after the function":
                runners[:] = supervisor.children()
                found = inner()
                return len(found) == kill.hosts and all(
                    child.status() == psutil.STATUS_ZOMBIE for child in found
                )
            return hits()

        try:
            if kill.moment != "at random":
                # Found before the moment where nothing is held: a search takes longer than that.
                eventually(lambda: self._marked("began") or not supervisor.is_running())
                runners[:] = supervisor.children()
                early = self._victim(supervisor, runners)
                self._until(has_come)
            else:
                early = None
            _wait(kill.delay)
            if early is None:
                runners[:] = supervisor.children()
                early = self._victim(supervisor, runners)
            self.told.killed = early is not None and early.is_running()
            if early is not None and self.told.killed:
                early.kill()
        except psutil.NoSuchProcess:
            self.told.killed = False
        for runner in runners:
            try:
                runner.resume()
            except psutil.NoSuchProcess:
                continue

    def _victim(
        self, supervisor: psutil.Process, runners: list[psutil.Process]
    ) -> psutil.Process | None:
        if self.kill.victim == "supervisor":
            return supervisor
        if self.kill.host >= len(runners):
            return None
        runner = sorted(runners, key=lambda one: one.pid)[self.kill.host]
        if self.kill.victim == "runner":
            return runner
        return next(iter(runner.children()), None)

    def _until(self, has_come: Callable[[], object]) -> None:
        deadline = time.monotonic() + 60
        while not has_come():
            if time.monotonic() > deadline:
                self.told.problems.append("the moment did not come")
                return
            time.sleep(0.0005)  # noqa: TID251

    def _look(self, submitter: Submitter) -> None:
        """Look at all that there is of the job, and whether it may be so."""
        told = self.told
        error = submitter.heard("error")
        if error is not None:
            told.problems.append(f"the submitter raised {error}: {submitter.said}")
        if submitter.heard("right") is False:
            told.wrong = True
            told.problems.append("a wrong value reached the submitter")
        with self.place.entered():
            found = self.place.job_ids()
            with_record = [one for one in found if self.place.has(JobObjects(one).handle)]
            for job_id in with_record:
                told.job_id = job_id
                self._look_at(job_id)
            if not with_record:
                told.ending = "nothing" if submitter.heard("right") is None else "value, cleaned up"
                if self.kill.victim != "submitter":
                    told.lost = True
                    told.problems.append("no record of the job is left")
            for job_id in found:
                left = ended_processes(job_id)
                if left:
                    told.processes = True
                    told.problems.append(left)
                if job_id in with_record:
                    kinetic.attach(job_id).cleanup()
            orphans = self.place.left()
            if orphans:
                told.orphans = True
                told.problems.append(f"left a day later: {orphans}")

    def _look_at(self, job_id: str) -> None:
        told, kill = self.told, self.kill
        handle = kinetic.attach(job_id)
        reason = ""
        value: Any = None
        try:
            value = handle.result(timeout=SECONDS, cleanup=False)
            told.ending = "value"
        except JobFailedError as error:
            told.ending, reason = "failed", str(error)
        except Exception as error:
            told.ending, reason = type(error).__name__, str(error)
            told.problems.append(f"{type(error).__name__}: {error}")
        outcome = handle.outcome()
        if told.ending == "value":
            if not is_right(value, kill.number, kill.size):
                told.wrong = True
                told.problems.append(f"a wrong value: {value!r:.200}")
            if handle.status() is not JobStatus.SUCCEEDED:
                told.problems.append(f"a value, but {handle.status()}")
            return
        if handle.status() is not JobStatus.FAILED:
            told.problems.append(f"no value, but {handle.status()}")
        complete = [
            number
            for number, reports in outcome.attempts.items()
            if len(reports) == kill.hosts and all(report.succeeded for report in reports)
        ]
        why = (
            f"all hosts of attempt {complete[0]} reported success" if complete else self._promise()
        )
        if why:
            told.lost = True
            told.problems.append(f"no value, although {why}: {reason}")

    def _promise(self) -> str:
        """Return why there must be a value even where not all hosts have reported one; or nothing."""
        kill = self.kill
        if not self.told.killed:
            return "nothing was killed"
        if kill.victim == "submitter":
            return "the job had begun" if any(self.marks.iterdir()) else ""
        if kill.victim == "supervisor":
            seen = kill.store == "bucket" or kill.moment == "after the function"
            # With more hosts than one the others' functions may not have ended at that moment.
            ended = kill.hosts == 1 or kill.moment == "after the function"
            return "the function had ended" if seen and ended and kill.moment in KEPT else ""
        return "there was another attempt" if kill.retries else ""


def _wait(seconds: float) -> None:
    until = time.perf_counter() + seconds
    while (left := until - time.perf_counter()) > 0:
        time.sleep(left if left > 0.02 else 0)  # noqa: TID251


def end_all(place: Place) -> None:
    """Kill what a round that was broken off left running."""
    for job_id in place.job_ids():
        supervisor = supervisor_of(job_id)
        if supervisor is not None:
            supervisor.send_signal(signal.SIGKILL)
            kill_hard(supervisor.pid)
        ended_processes(job_id, 0.1)
