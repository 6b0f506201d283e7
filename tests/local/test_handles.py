"""What a handle does besides collecting: follow a log, run the job again here."""

from __future__ import annotations

import sys
from typing import Any


def test_a_loop_over_a_handle_follows_a_job_that_waits_and_ctrl_c_leaves_it_alone(
    project: Any,
) -> None:
    script = """
        import os, signal, time
        import kinetic

        @kinetic.run(accelerator="cpu")
        def work():
            time.sleep(0.5)
            print("one", flush=True)
            time.sleep(0.5)
            print("two")
            return 3

        def until_stopped(job):
            for line in job:
                print("seen", line)
                os.kill(os.getpid(), signal.SIGINT)

        job = work.run_async()
        try:
            until_stopped(job)
        except KeyboardInterrupt:
            print(job.status().value)
        print(*job, sep=",")
        print(job.result())
    """
    assert project.script(script).splitlines() == ["seen one", "RUNNING", "one,two", "3"]


PAST = """
    import os, pathlib, sys
    import kinetic
    from helper import factor

    @kinetic.run(accelerator="v5e-4", capture_env_vars=["RATE", "SECRET"])
    def train(folder, fails=False):
        import jax
        size = len(pathlib.Path(folder, "one.txt").read_text())
        if "://" not in (outputs := os.environ["KINETIC_OUTPUT_DIR"]):
            pathlib.Path(outputs, "made").touch()
        if fails:
            raise ValueError(f"bad {size}")
        return size * factor(), jax.device_count(), os.environ.get("RATE"), os.environ.get("SECRET")

    job = train.run_async(kinetic.Data("set"), fails="fails" in sys.argv)
    try:
        job.result(cleanup=False)
    except ValueError:
        pass
    print(job.job_id)
"""


def past_job(project: Any, *args: str, **environment: str) -> str:
    """Run a job, change its project, and return its id."""
    project.write("set/one.txt", "four")
    project.write("helper.py", "def factor(): return 10\n")
    done: str = project.script(PAST, *args, RATE="1", SECRET="x", **environment)
    project.write("helper.py", "def factor(): return 11\n")
    project.write("set/one.txt", "changed")
    return done.splitlines()[-1]


def test_a_past_job_is_replayed_here_as_it_was_and_is_left_alone(project: Any, bucket: Any) -> None:
    store = "gs://jobs"
    job_id = past_job(project, KINETIC_STORE=store)
    before = bucket.objects("jobs")

    replay = f"import kinetic; print(kinetic.attach({job_id!r}).replay().result(cleanup=False))"
    project.write("again.py", replay)
    done = project.run("again.py", RATE="2", KINETIC_STORE=store)

    assert done.stdout == "(40, 4, '2', None)\n", done.stderr
    assert "Not set here: SECRET" in done.stderr
    assert bucket.objects("jobs") == before
    assert len(list((project.home / "store" / "outputs").glob("*/made"))) == 1
    command = project.cli("jobs", "replay", job_id)
    assert command.returncode == 1
    assert "no such job" in command.stderr


def test_the_exception_of_a_replayed_job_is_debugged_where_it_was_raised(project: Any) -> None:
    job_id = past_job(project, "fails")
    kinetic = [sys.executable, "-m", "kinetic_cli"]

    shown = project.execute(*kinetic, "jobs", "replay", job_id)
    assert shown.returncode == 1
    assert "ValueError: bad 4" in shown.stderr
    debugged = project.execute(*kinetic, "jobs", "replay", job_id, "--pdb", text="p size + 1\nq\n")
    assert "(Pdb) 5\n" in debugged.stdout
    assert debugged.returncode == 1
    assert {path.name for path in (project.home / "store").glob("*-train-*")} >= {job_id}


def test_a_call_that_cannot_be_replayed_is_refused_with_the_reason(project: Any) -> None:
    job_id = past_job(project)
    payload = project.home / "store" / job_id / "payload.pkl"
    whole = payload.read_bytes()

    payload.write_bytes(whole + b".")
    assert "is not the one that was submitted" in project.cli("jobs", "replay", job_id).stderr
    here = "{}.{}.{}".format(*sys.version_info)
    payload.write_bytes(whole.replace(f'"python": "{here}"'.encode(), b'"python": "3.9.1"'))
    refused = project.cli("jobs", "replay", job_id).stderr
    assert "was submitted with Python 3.9.1" in refused
    assert "an environment with Python 3.9." in refused
    payload.unlink()
    refused = project.cli("jobs", "replay", job_id).stderr
    assert f"The call of job {job_id} was removed" in refused
