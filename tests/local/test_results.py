"""Results asked for again, at once, late, after clean-up, and of jobs that somebody tampered with."""

from __future__ import annotations

import json
from typing import Any

import pytest

PRELUDE = """
import itertools, json, os, pathlib, threading, time
import kinetic

STORE = pathlib.Path(os.environ["KINETIC_HOME"], "store")

@kinetic.run(accelerator="cpu")
def work(size=1, seconds=0.0):
    print("working", flush=True)
    time.sleep(seconds)
    return b"x" * size

@kinetic.run(accelerator="cpu")
def fail():
    raise ValueError("bad")

def tried(call):
    try:
        return repr(call())
    except Exception as error:
        return f"{type(error).__name__}: {error}"

def again(job):
    return kinetic.attach(job.job_id)

def finished(function, *args):
    job = function.run_async(*args)
    tried(lambda: again(job).result(timeout=100, cleanup=False))
    return job

def alone(job):
    # Returns when the job's supervisor is gone.
    from kinetic.backends.local.liveness import wait_for_death
    from kinetic.backends.local.paths import Home

    while not wait_for_death(Home(os.environ["KINETIC_HOME"]).job(job.job_id), 1.0):
        pass

def running():
    job = work.run_async(1, 600)
    assert next(job.log_lines(follow=True)).text == "working"
    return job

def cli(*args):
    from click.testing import CliRunner
    from kinetic_cli.main import cli as command

    done = CliRunner().invoke(command, args)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert "unexpectedly" not in done.output, done.output
    return done.exit_code, done.output
"""


def said(project: Any, body: str) -> Any:
    return json.loads(project.script(PRELUDE + body).splitlines()[-1])


def test_clean_up_takes_what_it_is_told_to_in_every_state(project) -> None:
    found = said(
        project,
        """
found = {}
makers = {"running": running, "done": lambda: finished(work), "failed": lambda: finished(fail)}
for (state, make), k8s, gcs in itertools.product(makers.items(), (True, False), (True, False)):
    job = make()
    cleaned = tried(lambda: job.cleanup(k8s=k8s, gcs=gcs))
    found[f"{state} {'k8s ' * k8s}{'gcs' * gcs}".strip()] = [
        cleaned.partition(":")[0],
        tried(lambda: job.status().value).strip("'"),
        tried(lambda: again(job).status().value).strip("'").partition(":")[0],
        tried(lambda: again(job).result(timeout=0, cleanup=False)).partition(":")[0],
        (STORE / job.job_id).exists(),
    ]
    job.cleanup()
    job.cleanup()
    assert job.status().value == "NOT_FOUND"
    assert tried(job.cancel).startswith("JobNotFoundError")
    assert not (STORE / job.job_id).exists()
    assert "working" in job.logs() or state != "done"
print(json.dumps(found))
""",
    )

    missing, cancelled = "JobNotFoundError", "JobCancelledError"
    assert found == {
        "running k8s gcs": ["None", "NOT_FOUND", missing, missing, False],
        "running k8s": ["None", "FAILED", "FAILED", cancelled, True],
        "running gcs": ["JobError", "RUNNING", "RUNNING", "ResultTimeoutError", True],
        "running": ["None", "RUNNING", "RUNNING", "ResultTimeoutError", True],
        "done k8s gcs": ["None", "NOT_FOUND", missing, missing, False],
        "done k8s": ["None", "SUCCEEDED", "SUCCEEDED", "b'x'", True],
        "done gcs": ["None", "SUCCEEDED", missing, missing, False],
        "done": ["None", "SUCCEEDED", "SUCCEEDED", "b'x'", True],
        "failed k8s gcs": ["None", "NOT_FOUND", missing, missing, False],
        "failed k8s": ["None", "FAILED", "FAILED", "ValueError", True],
        "failed gcs": ["None", "FAILED", missing, missing, False],
        "failed": ["None", "FAILED", "FAILED", "ValueError", True],
    }


def test_without_its_artifacts_a_finished_job_stays_finished_and_says_what_is_gone(project) -> None:
    found = said(
        project,
        """
job = finished(work)
job.cleanup(k8s=False)
first = job.status().value, tried(lambda: job.result(timeout=100)), job.logs()
alone(job)
print(json.dumps([first, job.status().value, os.listdir(STORE)]))
""",
    )

    (status, result, log), later, left = found
    assert status == later == "SUCCEEDED"
    assert "its artifacts were removed" in result
    assert log == "working\n"
    assert not any(name.startswith("cpu-") for name in left)


def test_several_collect_at_once_and_each_gets_the_value_or_hears_why_not(project) -> None:
    found = said(
        project,
        """
ends = []
for _ in range(5):
    job = work.run_async(200_000, 0.1)
    handles = [again(job) for _ in range(4)]
    threads = [threading.Thread(target=lambda h=h: ends.append(tried(lambda: len(h.result(timeout=100)))))
               for h in handles]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
print(json.dumps(ends))
""",
    )

    assert set(found) - {"200000"} <= {
        text for text in found if text.startswith("JobNotFoundError")
    }
    assert found.count("200000") >= 5


def test_who_cancels_and_who_finishes_agree_on_one_end(project) -> None:
    found = said(
        project,
        """
ends = []
for number in range(12):
    job = work.run_async(1, 0.02 * (number % 4))
    time.sleep(0.03 * (number % 6))
    ends.append([tried(job.cancel), job.status().value, tried(lambda: job.result(cleanup=False)),
                 tried(job.cancel), tried(again(job).result)])
print(json.dumps(ends))
""",
    )

    for first, status, result, second, other in found:
        assert first == second == "None"
        assert result.partition("\n")[0] == other.partition("\n")[0]
        assert (status, result[:18]) in {("SUCCEEDED", "b'x'"), ("FAILED", "JobCancelledError:")}


def test_a_clean_up_while_somebody_waits_ends_the_wait_in_words(project) -> None:
    found = said(
        project,
        """
ends = []
for number in range(4):
    job = work.run_async(1, 600)
    threading.Timer(0.1 * number, again(job).cleanup).start()
    ends.append(tried(lambda: job.result(timeout=100)).partition(":")[0])
print(json.dumps(ends))
""",
    )

    assert set(found) <= {"JobCancelledError", "JobNotFoundError"}


DAMAGE = ["", "{", "[1, 2]", '"text"', '{"version": 99}', '{"job_id": 3}', "\udcff"]


@pytest.mark.parametrize("part", ["handle.json", "outcome.json", "attempts/1/host-0.json"])
def test_a_damaged_record_is_named_hides_no_other_job_and_can_be_removed(project, part) -> None:
    found = said(
        project,
        f"""
good, ends = finished(work), []
for damage in {DAMAGE!r}:
    job = finished(work)
    path = STORE / job.job_id / {part!r}
    path.write_bytes(damage.encode(errors="surrogateescape"))
    error = tried(lambda: again(job).result(timeout=100, cleanup=False))
    listed = cli("jobs", "list", "--json")
    ends.append([error, listed[0], good.job_id in listed[1], str(path.parent) in error])
    cleaned = tried(lambda: job.cleanup())
    assert (STORE / job.job_id).exists() == (cleaned != "None"), cleaned
    assert cli("jobs", "status", job.job_id)[0] == cli("jobs", "result", job.job_id)[0] == 1
    import shutil
    shutil.rmtree(STORE / job.job_id, ignore_errors=True)
print(json.dumps(ends))
""",
    )

    for error, listed, good_is_listed, _ in found:
        assert error.startswith(("RecordError", "FutureRecordError", "IntegrityError"))
        assert part in error
        assert listed == 0
        assert good_is_listed


def test_a_damaged_state_leaves_a_truthful_status(project) -> None:
    found = said(
        project,
        f"""
ends = []
for damage in [*{DAMAGE!r}, '{{"status": "dancing", "reason": "", "attempts": []}}']:
    job = finished(work)
    alone(job)
    (STORE / job.job_id / "outcome.json").unlink()
    state = pathlib.Path(os.environ["KINETIC_HOME"], "jobs", job.job_id, "state.json")
    state.write_bytes(damage.encode(errors="surrogateescape"))
    ends.append([cli("jobs", "status", job.job_id)[0], tried(lambda: again(job).result(timeout=100))])
print(json.dumps(ends))
""",
    )

    assert found == [[0, "b'x'"]] * (len(DAMAGE) + 1)


def test_a_value_that_was_tampered_with_is_never_unpickled(project) -> None:
    found = said(
        project,
        """
import pickle
class Trap:
    def __reduce__(self): return os.mkdir, ("trapped",)
ends = []
for size, part in ((200_000, "attempts/1/host-0.pkl"), (1, "attempts/1/host-0.json")):
    job = finished(work, size)
    path = STORE / job.job_id / part
    path.write_bytes(pickle.dumps(Trap()))
    ends.append(tried(lambda: again(job).result(timeout=100)))
    path.unlink()
    ends.append(tried(lambda: again(job).result(timeout=100)))
    ends.append(job.status().value)
print(json.dumps([ends, os.path.exists("trapped")]))
""",
    )

    ends, trapped = found
    assert not trapped
    assert [end.partition(":")[0] for end in ends] == [
        "IntegrityError",
        "IntegrityError",
        "SUCCEEDED",
    ] * 2


def test_what_is_stored_by_its_contents_and_was_damaged_is_sent_again(project) -> None:
    project.write("set/file.txt", "data")
    found = said(
        project,
        """
@kinetic.run(accelerator="cpu")
def read(folder):
    return open(f"{folder}/file.txt").read()

def call():
    return read.run_async(kinetic.Data("set")).result(timeout=100)

ends = [tried(call)]
for folder in ("contexts", "data"):
    for path in [path for path in (STORE / folder).rglob("*") if path.is_file()]:
        path.write_bytes(bytes(path.stat().st_size))
    ends += [tried(call), tried(call)]
print(json.dumps(ends))
""",
    )

    good, context, good_again, data, good_at_last = found
    assert good == good_again == good_at_last == "'data'"
    for error in (context, data):
        assert error.startswith("JobFailedError")
        assert "Submit the job again" in error


def test_an_unknown_job_is_said_with_where_it_was_looked_for(project) -> None:
    found = said(
        project,
        """
job = finished(work)
job.cleanup()
NO_JOB = "cpu-work-20260101-000000-0123456"
print(json.dumps([
    tried(lambda: kinetic.attach(NO_JOB)), tried(lambda: kinetic.attach("../x")),
    cli("jobs", "status", NO_JOB), tried(lambda: again(job)), cli("jobs", "logs", job.job_id),
]))
""",
    )

    unknown, strange, status, cleaned, log = found
    assert unknown.startswith("JobNotFoundError")
    assert f"{project.home}/store" in unknown
    assert strange.startswith("InvalidRequestError")
    assert status[0] == 1
    assert "It was cleaned up. Its log is kept" in cleaned
    assert log == [0, "working\n"]
