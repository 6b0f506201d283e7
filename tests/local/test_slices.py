"""Slices of several hosts on this machine: whose value counts, whose failure, and who is stopped."""

from __future__ import annotations

import json
from importlib.util import find_spec
from typing import Any

import pytest

PRELUDE = """
import atexit, json, os, sys, time
import kinetic

on_four_hosts = kinetic.run(accelerator="tpu-v5litepod-16", backend="local-gke")

def host():
    return int(os.environ["KINETIC_HOST_INDEX"])

def meet(*hosts, where="at work"):
    # Waits until all of them are here, too.
    folder = os.environ["KINETIC_OUTPUT_DIR"]
    open(os.path.join(folder, f"{host()} {where}"), "w").close()
    while not {f"{number} {where}" for number in hosts} <= set(os.listdir(folder)):
        time.sleep(0.01)

def fail_with(*hosts):
    # None of them is gone, which is a reason to stop the others, before all have said why they fail.
    meet(0, 1, 2, 3)
    atexit.register(meet, *hosts, where="at the end")

def end(job):
    try:
        said = repr(job.result(timeout=100, cleanup=False))
        notes = []
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        notes = [note for note in getattr(error, "__notes__", ()) if "traceback" not in note]
    return [said, notes, {one.host: one.reason for one in job.outcome().hosts}]
"""


def said(project: Any, body: str) -> Any:
    return json.loads(project.script(PRELUDE + body).splitlines()[-1])


def test_the_leaders_value_counts_every_log_is_followed_and_jax_is_left_alone(project) -> None:
    value, followed, log, tail = said(
        project,
        """
@on_four_hosts
def work():
    print("hello from", host(), "of", os.environ["KINETIC_HOST_COUNT"])
    return host(), "jax" in sys.modules

if __name__ == "__main__":
    job = work.run_async()
    followed = [line.shown for line in job.log_lines(follow=True)]
    value = job.result(timeout=60, cleanup=False)
    print(json.dumps([value, followed, job.logs(), job.tail(1)]))
""",
    )

    lines = [f"[host {n}] hello from {n} of 4" for n in range(4)]
    assert value == [0, False]
    assert sorted(followed) == lines
    assert log.splitlines() == lines
    assert tail == lines[0]


def test_the_lowest_failing_host_is_raised_the_others_are_named_or_stopped(project) -> None:
    everywhere, two, worker = said(
        project,
        """
@on_four_hosts
def everywhere():
    fail_with(0, 1, 2, 3)
    raise ValueError(f"host {host()}")

@on_four_hosts
def two():
    if host() in (1, 3):
        fail_with(1, 3)
        raise [KeyError, ValueError][host() == 1](f"host {host()}")
    meet(0, 1, 2, 3)
    time.sleep(600)

@on_four_hosts
def worker():
    meet(0, 1, 2, 3)
    if host() == 2:
        os._exit(3)
    time.sleep(600)

if __name__ == "__main__":
    print(json.dumps([end(function.run_async()) for function in (everywhere, two, worker)]))
""",
    )

    assert everywhere[0] == "ValueError: host 0"
    assert "on host 0" in everywhere[1][0]
    assert everywhere[1][1] == "Also failed: hosts 1, 2, 3."
    assert two[0] == "ValueError: host 1"
    assert two[1][1] == "Also failed: host 3."
    assert two[2] == {
        "0": "terminated",
        "1": "exception",
        "2": "terminated",
        "3": "exception",
    }
    assert "exit code 3" in worker[0]
    assert "on host 2" in worker[1][0]
    assert worker[2] == {"0": "terminated", "1": "terminated", "2": "exited", "3": "terminated"}


def test_a_leader_that_returned_does_not_hide_a_worker_that_fails_later(project) -> None:
    late, again = said(
        project,
        """
@on_four_hosts
def late():
    if host() == 3:
        job = os.path.join(os.environ["KINETIC_HOME"], "store", os.environ["KINETIC_JOB_ID"])
        while not os.path.exists(os.path.join(job, "attempts", "1", "host-0.json")):
            time.sleep(0.01)
        raise ValueError("late")

@kinetic.run(accelerator="tpu-v5litepod-16", backend="local-gke", retries=1)
def again():
    if host() == 1 and os.environ["KINETIC_ATTEMPT"] == "1":
        raise ValueError("once")
    return os.environ["KINETIC_ATTEMPT"]

if __name__ == "__main__":
    print(json.dumps([end(late.run_async()), end(again.run_async())]))
""",
    )

    assert late[0] == "ValueError: late"
    assert late[2]["0"] == "returned"
    assert again[0] == "'2'"


@pytest.mark.skipif(find_spec("jax") is None, reason="JAX is not installed")
def test_a_host_that_fails_while_the_others_wait_for_it_in_jax_explains_the_end(project) -> None:
    [found] = said(
        project,
        """
@on_four_hosts
def work():
    import jax
    from jax.experimental import multihost_utils
    assert (jax.process_count(), jax.device_count()) == (4, 16)
    multihost_utils.sync_global_devices("together")
    if host() == 2:
        raise ValueError("the culprit")
    multihost_utils.sync_global_devices("never")

if __name__ == "__main__":
    print(json.dumps([end(work.run_async())]))
""",
    )

    assert found[0] == "ValueError: the culprit"
    assert "on host 2" in found[1][0]
    assert found[2]["2"] == "exception"


NEEDS_JAX = pytest.mark.skipif(find_spec("jax") is None, reason="JAX is not installed")

JOINED = """
import pathlib, signal, socket

def await_leader():
    # Its coordinator listens: it is about to wait for us, in `import jax`.
    address, port = os.environ["KINETIC_COORDINATOR_ADDRESS"].split(":")
    while True:
        try:
            return socket.create_connection((address, int(port))).close()
        except OSError:
            time.sleep(0.01)

def joined():
    import jax
    from jax.experimental import multihost_utils
    multihost_utils.sync_global_devices("joined")
    return multihost_utils

def tidy_up():
    # The leader has nothing left to do when the other one is in the middle of it.
    if host() == 0:
        atexit.register(mark, "ended")
    else:
        await_marks(folder(), "0 ended")
        time.sleep(1)
    mark("tidied up")

def folder():
    return pathlib.Path(os.environ["KINETIC_OUTPUT_DIR"])

def mark(what):
    (folder() / f"{host()} {what}").touch()

def await_marks(folder, *names):
    while not all((folder / name).exists() for name in names):
        time.sleep(0.01)

def outputs(job):
    return pathlib.Path(os.environ["KINETIC_HOME"]) / "store" / "outputs" / job.job_id

def ended(job):
    said = end(job)
    messages = [one.message for one in job.outcome().hosts]
    return [*said, messages, sorted(path.name for path in outputs(job).iterdir())]
"""


@NEEDS_JAX
@pytest.mark.slow  # five jobs of two processes that import JAX
def test_whatever_ends_a_slice_its_hosts_tidy_up_although_jax_has_taken_sigterm(project) -> None:
    cancelled, late, raised, returned, early = said(
        project,
        JOINED
        + """
def work(how):
    try:
        if how == "early" and host() == 1:
            await_leader()
            raise ValueError("the culprit")
        hosts = joined()
        mark("at work")
        if how == "raise" and host() == 0:
            raise ValueError("the culprit")
        if how == "return":
            if host() == 0:
                return
            await_marks(folder(), "0 ended")
            raise ValueError("the culprit")
        while how == "compute":
            hosts.sync_global_devices("again")
        time.sleep(600)
    finally:
        if how in ("raise", "sleep"):
            tidy_up()
        else:
            mark("tidied up")
            atexit.register(mark, "ended")

on_two_hosts = {"accelerator": "v4-8", "backend": "local-gke"}

if __name__ == "__main__":
    running = kinetic.run(**on_two_hosts)(work).run_async("compute")
    await_marks(outputs(running), "0 at work", "1 at work")
    running.cancel()
    ends = [ended(running)]
    for how, more in (("sleep", {"timeout": 10}), ("raise", {}), ("return", {}), ("early", {})):
        ends.append(ended(kinetic.run(**on_two_hosts, **more)(work).run_async(how)))
    print(json.dumps(ends))
""",
    )

    assert cancelled[0].startswith("JobCancelledError")
    assert cancelled[2] == {"0": "terminated", "1": "terminated"}
    assert "10 s" in late[0]
    assert "timeout" in late[2].values()  # The other one may be stopped before its own time is up.
    assert set(late[2].values()) <= {"timeout", "terminated"}
    assert raised[0] == "ValueError: the culprit"
    assert "on host 0" in raised[1][0]
    assert raised[2] == {"0": "exception", "1": "terminated"}
    assert returned[0] == "ValueError: the culprit"
    assert returned[2] == {"0": "returned", "1": "exception"}
    assert early[0] == "ValueError: the culprit"
    assert early[2] == {"0": "terminated", "1": "exception"}
    for _, _, _, messages, marks in (cancelled, late, raised, returned, early):
        assert not [message for message in messages if "killed" in message]
        assert {"0 tidied up", "1 tidied up"} <= set(marks)


@NEEDS_JAX
@pytest.mark.slow  # two processes that import JAX
def test_jax_sees_a_preemption_of_one_host_on_all_at_the_same_step(project) -> None:
    found, steps = said(
        project,
        JOINED
        + """
@kinetic.run(accelerator="v4-8", backend="local-gke", retries=1)
def work():
    hosts = joined()
    mark("at work")
    step = 0
    while not hosts.reached_preemption_sync_point(step):
        step += 1
        hosts.sync_global_devices(f"step {step}")
    (folder() / f"{host()} saved").write_text(f"{os.environ['KINETIC_ATTEMPT']} {step}")

if __name__ == "__main__":
    job = work.run_async()
    await_marks(outputs(job), "0 at work", "1 at work")
    state = pathlib.Path(os.environ["KINETIC_HOME"]) / "jobs" / job.job_id / "state.json"
    os.kill(json.loads(state.read_text())["attempts"][0]["pids"][1], signal.SIGTERM)
    found = ended(job)
    print(json.dumps([found, [(outputs(job) / f"{n} saved").read_text() for n in (0, 1)]]))
""",
    )

    assert steps[0] == steps[1]
    assert steps[0].startswith("1 ")  # Whoever stops a job from outside means it: no other attempt.
    assert "SIGTERM came from outside" in found[0]
    assert "on host 1" in found[1][0]
    assert found[2] == {"0": "returned", "1": "terminated"}
