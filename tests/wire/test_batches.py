"""Batches with the real runner over a folder and a bucket: values, failures, stops and members."""

from __future__ import annotations

import asyncio
import os
import pickle
import random
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

import kinetic
from kinetic.errors import (
    BatchError,
    InvalidRequestError,
    JobCancelledError,
    JobKilledError,
    JobNotFoundError,
    NotLaunchedError,
    NoValueError,
    PayloadError,
    SubmitError,
)
from kinetic.job_status import JobStatus
from kinetic.testing import eventually
from kinetic.waiting import sleep

STEPS = """
    import os, signal, time
    import kinetic

    def plain(*args, **kwargs):
        return list(args), kwargs

    @kinetic.run(accelerator="cpu", project="theirs", cluster="one")
    def shape(*args, **kwargs):
        names = ("KINETIC_BATCH_INDEX", "KINETIC_BATCH_SIZE", "KINETIC_OUTPUT_DIR")
        return plain(*args, **kwargs), [os.environ[name] for name in names]

    @kinetic.run(accelerator="cpu", timeout=60)
    def step(index, marks, until=None, end="value"):
        with open(f"{marks}/{index}", "a") as begun:
            begun.write(f"{os.getppid()}\\n")
        print("step", index, flush=True)
        while until and not os.path.exists(f"{marks}/{until}"):
            time.sleep(0.02)
        if end == "exit":
            os._exit(3)
        if end.startswith("SIG"):
            os.kill(os.getpid(), getattr(signal, end))
        if end == "kill the worker":
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(60)
        if end == "raise" or end == "retry" and os.environ["KINETIC_ATTEMPT"] == "1":
            raise KeyError(index)
        with open(f"{marks}/{index}-done", "a") as done:
            done.write("x")
        return index
"""


class Marks:
    """Files by which inputs tell that they begin and succeed, and for which they wait."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder

    def begun(self, index: int) -> list[int]:
        """Return the process that ran the input, once for each time that it began."""
        path = self.folder / str(index)
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def done(self, *indexes: int) -> list[int]:
        """Return how often each input succeeded."""
        paths = [self.folder / f"{index}-done" for index in indexes]
        return [len(path.read_text()) if path.exists() else 0 for path in paths]

    def open(self, name: str) -> None:
        (self.folder / name).touch()


@pytest.fixture
def marks(tmp_path: Path) -> Marks:
    return Marks(tmp_path / "marks")


@pytest.fixture
def steps(desk: Any) -> Any:
    desk.set(KINETIC_LOCAL_JOBS="2")
    return desk.module("steps", STEPS)


@pytest.fixture(params=["folder", "bucket"])
def place(request: pytest.FixtureRequest, desk: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return where the jobs of the desk are."""
    if request.param == "folder":
        monkeypatch.delenv("KINETIC_STORE")
    return str(request.param)


@pytest.fixture
def mapped(steps: Any, marks: Marks) -> Callable[..., Any]:
    """Return what starts a batch of `step`: for each index its further arguments."""

    def start(inputs: list[dict[str, Any]], **options: Any) -> Any:
        numbered = [{"index": index, **given} for index, given in enumerate(inputs)]
        common = {"marks": str(marks.folder)}
        return steps.step.run_async_map(numbered, common=common, **options)

    return start


def generated(seed: int) -> list[Any]:
    """Return inputs of all kinds."""
    draw = random.Random(seed)
    leaf: list[Callable[[], Any]] = [
        lambda: draw.randrange(99), lambda: "text", lambda: None, lambda: bytes(draw.choice([3, 300_000])),
    ]  # fmt: skip
    kinds: list[Callable[[], Any]] = [
        *leaf,
        lambda: tuple(draw.choice(leaf)() for _ in range(draw.randrange(4))),
        lambda: [draw.choice(leaf)() for _ in range(draw.randrange(4))],
        lambda: {name: draw.choice(leaf)() for name in draw.sample("abc", draw.randrange(4))},
        lambda: {draw.randrange(9): "not a name"},
    ]
    return [kind() for kind in kinds] + [draw.choice(kinds)() for _ in range(4)]


def as_called(given: Any, function: Callable[..., Any]) -> Any:
    if isinstance(given, dict) and all(isinstance(key, str) for key in given):
        return function(**given)
    return function(*given) if isinstance(given, list | tuple) else function(given)


def names_in(desk: Any) -> list[str]:
    """Return the names of objects of jobs in the bucket and in the folder."""
    groups = desk.folder / "here" / "store" / "groups"
    files = [str(path.relative_to(groups.parent)) for path in groups.rglob("*") if path.is_file()]
    return [*desk.of_jobs(), *files]


async def gathered(handle: Any) -> list[tuple[int, Any]]:
    return [found async for found in handle.iter_results()]


def test_the_values_of_a_batch_are_those_of_plain_calls_until_they_are_cleaned_up(
    desk: Any, steps: Any, place: str
) -> None:
    inputs = generated(33)
    size = len(inputs)
    expected = [as_called(given, steps.plain) for given in inputs]

    named = {"name": "sweep", "tags": {"a": "b"}, "cluster": "two"}
    handle = steps.shape.run_async_map(iter(inputs), **named)
    assert handle.jobs[0].cluster_name == "two"
    arrived = list(handle.iter_results(ordered=False, timeout=200))
    if place == "bucket":
        desk.share_key("there")
    found = kinetic.attach_batch(handle.group_id)

    assert (found.name, found.tags, len(found), len(found.jobs)) == (
        "sweep",
        {"a": "b"},
        size,
        size,
    )
    values = found.results(cleanup=False)
    assert sorted(arrived) == list(enumerate(values)) == list(found.iter_results())
    assert asyncio.run(gathered(found)) == list(enumerate(values))
    ended = [job.result() for job in found.as_completed(timeout=100)]
    assert sorted(map(repr, ended)) == sorted(
        map(repr, found.results(ordered=False, cleanup=False))
    )
    assert [value for value, _ in values] == expected
    folders = {folder for _, (_, _, folder) in values}
    assert [tuple(names[:2]) for _, names in values] == [
        (str(index), str(size)) for index in range(size)
    ]
    assert len(folders) == size
    assert found.status_counts() == {"SUCCEEDED": size}
    assert found.failures() == []
    desk.sit("here")
    # Of two who collect at once, both get all; the last one removes the batch.
    other = kinetic.attach_batch(handle.group_id)
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(each.results) for each in (handle, other)]
        assert [each.result() for each in both] == [values, values]
    handle.statuses()  # It waits for the removal, if this one began it.
    assert other.statuses() == handle.statuses()
    assert handle.statuses() == [(index, JobStatus.NOT_FOUND) for index in range(size)]
    assert pickle.loads(pickle.dumps(handle)).statuses() == handle.statuses()
    assert list(handle.iter_results()) == list(enumerate(values))
    assert handle.jobs[0].status() is JobStatus.NOT_FOUND
    for again in (handle.retry_failed, kinetic.attach_batch(handle.group_id).jobs[1].result):
        with pytest.raises(JobNotFoundError, match="cleaned up"):
            again()
    kept = [f"groups/{handle.group_id}/{name}.json" for name in ("manifest", "outcome")]
    assert sorted(names_in(desk)) == kept
    assert "collected of" in repr(handle)
    handle.cleanup()
    assert names_in(desk) == []
    with pytest.raises(JobNotFoundError, match=handle.group_id):
        kinetic.attach_batch(handle.group_id)


def test_an_input_that_ends_its_process_or_raises_fails_alone(
    mapped: Callable[..., Any], marks: Marks
) -> None:
    ends = ["value", "raise", "SIGSEGV", "exit", "SIGKILL", "value", "SIGTERM", "value"]

    handle = mapped([{"end": end} for end in ends], inputs_per_pod=8)

    with pytest.raises(BatchError, match=f"5 of 8 inputs of {handle.group_id}") as caught:
        handle.results()
    error = caught.value
    assert (error.group_id, error.partial_results) == (
        handle.group_id,
        [index if end == "value" else None for index, end in enumerate(ends)],
    )
    assert [job.group_index for job in error.failures] == [1, 2, 3, 4, 6]
    assert [job.job_id for job in handle.failures()] == [job.job_id for job in error.failures]
    assert "Input 1: KeyError: 1" in "\n".join(error.__notes__)
    # Failures are kept until they are cleaned up.
    found = kinetic.attach_batch(handle.group_id).results(return_exceptions=True)
    assert [found[index] for index in (0, 5, 7)] == [0, 5, 7]
    assert (type(found[1]), found[1].args) == (KeyError, (1,))
    for index, seen in {2: "SIGSEGV", 3: "exit code 3", 4: "SIGKILL", 6: "SIGTERM"}.items():
        assert type(found[index]) is (NoValueError if index in (3, 6) else JobKilledError)
        assert seen in str(found[index])
    assert [len(marks.begun(index)) for index in range(8)] == [1] * 8
    with pytest.raises(BatchError, match="5 of 8"):
        list(handle.iter_results())
    kept = dict(handle.iter_results(ordered=False, return_exceptions=True))
    assert [type(kept[index]) for index in range(3)] == [int, KeyError, JobKilledError]
    assert [handle.jobs[index].status() for index in (0, 1)] == [
        JobStatus.SUCCEEDED,
        JobStatus.FAILED,
    ]


def test_the_process_of_an_input_is_as_fresh_as_that_of_a_job(desk: Any) -> None:
    module = desk.module("fresh", """
        import kinetic

        @kinetic.run(accelerator="cpu")
        def fresh(x):
            import builtins, os, random, signal, sys, threading
            number = random.random()
            runners = "kinetic", "_socket", "array", "select", "socket"
            seen = {
                "left": getattr(builtins, "left", os.environ.get("LEFT")),
                "folder": os.path.basename(os.getcwd()),
                "path": [os.path.basename(each) for each in sys.path],
                "modules": [name for name in sorted(sys.modules) if not name.startswith(runners)],
                "session": os.getsid(0) == os.getpid() == os.getpgrp(),
                "descriptors": len(os.listdir("/dev/fd")),
                "input": sys.stdin.read(),
                "signals": [type(signal.getsignal(each)).__name__ for each in signal.valid_signals()],
                "blocked": list(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
                "threads": threading.active_count(),
                "main": threading.current_thread() is threading.main_thread(),
                "thread": threading.main_thread().native_id == os.getpid(),
                "output": [each.seekable() for each in (sys.stdout, sys.stdout.buffer)],
                "umask": os.umask(0),
            }
            builtins.left = os.environ["LEFT"] = "left"
            os.chdir("/")
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)
            return seen, number
    """)  # fmt: skip

    found = module.fresh.run_async_map(range(4), inputs_per_pod=4).results()

    alone, _ = module.fresh.run_async(0).result()
    assert [seen for seen, _ in found] == [alone] * 4
    assert len({number for _, number in found}) == 4


@pytest.mark.parametrize("problem", ["killed", "threads"])
def test_inputs_run_also_where_their_processes_cannot_be_forked(
    desk: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: str
) -> None:
    if problem == "threads":  # A fork of a process with threads can deadlock.
        script = "from threading import Event, Thread\nThread(target=Event().wait, daemon=True).start()\n"
        (tmp_path / "sitecustomize.py").write_text(script)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    module = desk.module("forked", """
        import kinetic, os

        @kinetic.run(accelerator="cpu", capture_env_vars=["PYTHONPATH"])
        def others(x, kill):
            import psutil
            found = [each for each in psutil.Process(os.getppid()).children() if each.pid != os.getpid()]
            if kill and x == 1:
                for each in found:
                    each.kill()
            return len(found)
    """)  # fmt: skip

    common = {"kill": problem == "killed"}

    handle = module.others.run_async_map(range(4), common=common, inputs_per_pod=4)

    assert handle.results() == ([1, 1, 0, 0] if problem == "killed" else [0, 0, 0, 0])


def test_a_worker_that_is_killed_is_replaced_and_runs_nothing_twice_that_had_ended(
    desk: Any, mapped: Callable[..., Any], marks: Marks
) -> None:
    desk.server.faults.add(status=503, probability=0.03)
    inputs = [{}, {}, {"until": "go"}, {"end": "kill the worker"}, {}]
    handle = mapped(inputs, inputs_per_pod=5)
    [worker] = eventually(lambda: marks.begun(2))

    os.kill(worker, signal.SIGKILL)
    eventually(lambda: len(marks.begun(2)) == 2)
    marks.open("go")

    found = handle.results(timeout=200, return_exceptions=True)
    assert found[:3] + found[4:] == [0, 1, 2, 4]
    assert "3 workers ended while they ran this input" in str(found[3])
    assert marks.done(0, 1, 2, 3, 4) == [1, 1, 1, 0, 1]
    assert [len(marks.begun(index)) for index in range(5)] == [1, 1, 2, 3, 1]
    ended = handle.jobs[2].outcome()
    assert (ended.final.attempt, ended.status) == (2, JobStatus.SUCCEEDED)


def test_values_are_right_although_the_store_is_away_and_requests_fail(
    desk: Any, mapped: Callable[..., Any], marks: Marks
) -> None:
    desk.server.faults.add(status=503, probability=0.01)
    handle = mapped([{"until": "go"}, {}, {}, {}], inputs_per_pod=2)
    eventually(lambda: marks.begun(0))
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(handle.results, timeout=200)
        away = desk.server.faults.add(held=True, reset="before")
        marks.open("go")
        sleep(3)
        away.times = 0
        away.release()

        assert waiting.result() == [0, 1, 2, 3]
    assert away.hits
    assert marks.done(0, 1, 2, 3) == [1] * 4


def test_what_a_killed_keeper_left_is_run_by_who_waits_and_what_failed_by_who_asks(
    desk: Any, mapped: Callable[..., Any], marks: Marks
) -> None:
    handle = mapped([{}, {"end": "retry"}, {"until": "go"}, {}, {"end": "raise"}], inputs_per_pod=5)
    [worker] = eventually(lambda: marks.begun(2))

    psutil.Process(worker).parent().kill()
    eventually(lambda: handle.jobs[2].status() is not JobStatus.RUNNING)
    assert len(marks.begun(2)) == 1  # To look at it starts nothing.
    marks.open("go")

    found = kinetic.attach_batch(handle.group_id).results(return_exceptions=True, timeout=200)
    assert [type(each) for each in found] == [int, KeyError, int, int, KeyError]
    assert marks.done(0, 2, 3) == [1, 1, 1]
    handle.retry_failed()
    assert [type(each) for each in handle.results(return_exceptions=True)] == [int] * 4 + [KeyError]
    assert marks.done(0, 1, 2, 3, 4) == [1, 1, 1, 1, 0]
    assert [len(marks.begun(index)) for index in range(5)] == [1, 2, 2, 1, 2]


def test_a_batch_cancelled_from_another_home_tells_what_was_stopped_from_what_never_began(
    desk: Any, mapped: Callable[..., Any], marks: Marks
) -> None:
    handle = mapped([{}, *[{"until": "never"}] * 5])
    assert next(iter(handle.as_completed(timeout=200))).group_index == 0
    eventually(lambda: marks.begun(1) and marks.begun(2))
    assert dict(handle.statuses()) == {
        0: JobStatus.SUCCEEDED, 1: JobStatus.RUNNING, 2: JobStatus.RUNNING,
        3: JobStatus.PENDING, 4: JobStatus.PENDING, 5: JobStatus.PENDING,
    }  # fmt: skip
    with pytest.raises(TimeoutError, match="5 of 6 inputs"):
        handle.wait(timeout=0.1)
    desk.share_key("there")
    far = kinetic.attach_batch(handle.group_id)
    far.jobs[5].cancel()

    far.cancel()

    found = far.results(return_exceptions=True)
    assert found[0] == 0
    kinds = [JobCancelledError] * 2 + [NotLaunchedError] * 2 + [JobCancelledError]
    assert [type(error) for error in found[1:]] == kinds
    assert "Input 4 was never started: The batch was cancelled." in str(found[4])
    assert "Input 1 was stopped" in str(found[1])
    desk.sit("here")
    handle.cancel()
    assert not any(marks.begun(index) for index in (3, 4, 5))
    assert handle.status_counts() == {"SUCCEEDED": 1, "FAILED": 5}
    assert handle._repr_html_().count(": failed") == 5
    with pytest.raises(BatchError, match="5 of 6") as caught:
        handle.results()
    assert len(caught.value.failures) == 5


@pytest.mark.parametrize(
    ("options", "begun", "failed"),
    [
        ({"fail_fast": True}, 2, 1),
        ({"max_failures": 1}, 3, 2),
    ],
)
def test_no_further_input_begins_after_one_failure_too_many(
    mapped: Callable[..., Any], marks: Marks, options: Any, begun: int, failed: int
) -> None:
    handle = mapped([{}, *[{"end": "raise"}] * 4, {}], max_concurrent=1, **options)

    found = handle.results(return_exceptions=True)

    assert [len(marks.begun(index)) for index in range(6)] == [1] * begun + [0] * (6 - begun)
    assert [type(each) for each in found[1 : 1 + failed]] == [KeyError] * failed
    missing = found[begun:]
    assert [type(each) for each in missing] == [NotLaunchedError] * len(missing)
    assert all("with " + next(iter(options)) in str(each) for each in missing)


def test_a_failure_stops_what_runs_if_it_should(mapped: Callable[..., Any], marks: Marks) -> None:
    inputs = [{"until": "never"}, {"until": "go", "end": "raise"}, {}]
    handle = mapped(inputs, cancel_running_on_fail=True)
    eventually(lambda: marks.begun(0) and marks.begun(1))
    marks.open("go")

    found = handle.results(return_exceptions=True, timeout=200)

    assert [type(each) for each in found] == [JobCancelledError, KeyError, NotLaunchedError]


def test_several_wait_at_once_resume_it_once_and_one_that_is_cancelled_ends_at_once(
    desk: Any, mapped: Callable[..., Any], marks: Marks
) -> None:
    handle = mapped([{}, {"until": "go"}, {}], inputs_per_pod=3)
    [worker] = eventually(lambda: marks.begun(1))
    psutil.Process(worker).parent().kill()
    eventually(lambda: handle.jobs[1].status() is not JobStatus.RUNNING)

    with ThreadPoolExecutor(3) as pool:
        there = kinetic.attach_batch(handle.group_id)
        waits = [pool.submit(each.results, timeout=200) for each in (handle, handle)]
        waits.append(pool.submit(there.wait, timeout=200))
        eventually(lambda: len(marks.begun(1)) == 2)
        with pytest.raises(TimeoutError):
            asyncio.run(asyncio.wait_for(gathered(there), 0.5))
        marks.open("go")
        found = [each.result() for each in waits]

    assert found == [[0, 1, 2], [0, 1, 2], None]
    assert [len(marks.begun(index)) for index in range(3)] == [1, 2, 1]


def test_an_input_is_retried_at_once_in_its_worker(
    mapped: Callable[..., Any], marks: Marks
) -> None:
    handle = mapped([{"end": "retry"}, {"end": "raise"}, {}], retries=1, inputs_per_pod=3)

    found = handle.results(return_exceptions=True)

    assert (found[0], type(found[1]), found[2]) == (0, KeyError, 2)
    begun = [marks.begun(index) for index in range(3)]
    assert [len(each) for each in begun] == [2, 2, 1]
    assert len({worker for each in begun for worker in each}) == 1


def test_a_member_is_a_job_that_is_followed_cancelled_and_found_by_its_id(
    mapped: Callable[..., Any], marks: Marks
) -> None:
    handle = mapped([{"until": "first"}, {"until": "never"}, {"until": "last"}])
    first, second, third = handle.jobs
    eventually(lambda: marks.begun(0) and marks.begun(1))
    statuses = [job.status() for job in handle.jobs]
    assert statuses == [JobStatus.RUNNING, JobStatus.RUNNING, JobStatus.PENDING]
    with ThreadPoolExecutor() as executor:
        following = executor.submit(lambda: [line.text for line in first.log_lines(follow=True)])
        waiting = executor.submit(third.result, timeout=200, cleanup=False)
        marks.open("first")
        assert following.result() == ["step 0"]
        assert first.result(timeout=200, cleanup=False) == 0

        second.cancel()
        assert second.status() is JobStatus.FAILED
        with pytest.raises(JobCancelledError):
            second.result()
        marks.open("last")
        assert waiting.result() == 2
    found = kinetic.attach(third.job_id)
    assert (found.group_id, found.group_kind, found.group_index) == (handle.group_id, "map", 2)
    assert (found.logs().strip(), found.result(cleanup=False)) == ("step 2", 2)
    results = handle.results(return_exceptions=True)
    assert (results[0], type(results[1]), results[2]) == (0, JobCancelledError, 2)
    unknown = third.job_id.removesuffix("2") + "3"
    with pytest.raises(JobNotFoundError):
        kinetic.attach(unknown)


def test_a_timeout_is_for_each_input_and_a_worker_keeps_nothing_open_of_one_that_ended(
    desk: Any,
) -> None:
    module = desk.module("slow", """
        import kinetic, os, time

        @kinetic.run(accelerator="cpu", timeout=1.5)
        def slow(seconds):
            import psutil
            time.sleep(seconds)
            return psutil.Process(os.getppid()).num_fds()
    """)  # fmt: skip

    handle = module.slow.run_async_map([0.8, 30, 0.9, 0, 0, 0, 0, 0], inputs_per_pod=8)

    found = handle.results(return_exceptions=True)
    assert "ran for more than 1.5 s" in str(found.pop(1))
    # The first opens connections, whose number varies.
    assert max(found) < min(found) + 4


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([[1, "m"], [1, "m", 2, 3, 4]], "Input 1: "),
        ([[1, "m"], {"marks": "m"}], "Input 1: "),
        ([[1, "m"], [2, "m", {"deep": [threading.Lock()]}]], "input 1"),
        ([], "at least one input"),
        ("text", "a list of inputs"),
    ],
)  # fmt: skip
def test_a_wrong_input_is_refused_before_anything_is_written(
    desk: Any, steps: Any, inputs: Any, message: str
) -> None:
    with pytest.raises((InvalidRequestError, PayloadError), match=message):
        steps.step.run_async_map(inputs)

    assert desk.names() == []


def test_what_a_generator_cannot_give_is_a_failed_slot_in_every_process(
    desk: Any, steps: Any
) -> None:
    def inputs() -> Any:
        yield 0
        yield open(os.devnull)  # noqa: SIM115 - it cannot be pickled
        yield 2
        raise OSError("no more")

    handle = steps.shape.run_async_map(inputs())

    failures = handle.submission_failures
    assert {index: type(error) for index, error in failures.items()} == {
        1: PayloadError,
        3: OSError,
    }
    assert [job is None for job in handle.jobs] == [False, True, False, True]
    with pytest.raises(BatchError, match="2 of 4") as caught:
        handle.results()
    assert caught.value.failures == []
    found = kinetic.attach_batch(handle.group_id)
    assert [type(error) for error in found.submission_failures.values()] == [SubmitError] * 2
    results = found.results(return_exceptions=True)
    assert [value[1][:2] for value in (results[0], results[2])] == [["0", "4"], ["2", "4"]]
    assert "OSError: no more" in str(results[3])
    assert "BufferedReader" in str(results[1]) or "TextIOWrapper" in str(results[1])
    assert [index for index, _ in found.statuses()] == [0, 2]
