"""Submitters: many at once, in odd places, without permissions, killed at any moment."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from kinetic.testing import eventually

from .conftest import unprivileged

BLOCKING = """
import kinetic, os, sys, time

@kinetic.run(accelerator="cpu")
def work(gate):
    print("up", flush=True)
    while gate and not os.path.exists(gate):
        time.sleep(0.02)
    return "value"

if __name__ == "__main__":
    print(work(sys.argv[1]))
"""


def listed(project) -> dict[str, str]:
    """Return the status of each job, as the command line prints it."""
    done = project.cli("jobs", "list", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    return {job["job_id"]: job["status"] for job in json.loads(done.stdout)}


# Many at once.


def test_threads_and_processes_submit_at_once_into_a_new_home(project) -> None:
    project.home /= "new"
    project.write(
        "main.py",
        """
        import sys, threading
        import kinetic

        @kinetic.run(accelerator="cpu")
        def work(x):
            print("line", x)
            return x * x

        def one(x):
            job = work.run_async(x)
            found[x] = (job.result(cleanup=False), job.logs())

        found = {}
        if __name__ == "__main__":
            first = int(sys.argv[1])
            threads = [threading.Thread(target=one, args=[x]) for x in range(first, first + 3)]
            for thread in threads: thread.start()
            for thread in threads: thread.join()
            print(found == {x: (x * x, f"line {x}\\n") for x in range(first, first + 3)})
    """,
    )
    processes = [project.start("main.py", str(3 * n), KINETIC_LOCAL_JOBS="9") for n in range(3)]

    ends = [process.communicate() for process in processes]

    assert ends == [("True\n", "")] * 3
    assert list(listed(project).values()) == ["SUCCEEDED"] * 9


# Odd places.

WHERE = """
import kinetic, os

@kinetic.run(accelerator="cpu")
def work():
    return os.path.relpath(os.getcwd(), os.environ["KINETIC_HOME"]).split(os.sep)[-2:]

if __name__ == "__main__":
    job = work.run_async()
    print(kinetic.attach(job.job_id).result())
"""


def test_home_and_store_may_have_any_name_and_are_no_part_of_the_project(project) -> None:
    not_unicode = (
        b"" if sys.platform == "darwin" else b"\xff"
    )  # Its file systems have no such names.
    project.root = project.root.parent / os.fsdecode(b"a project" + not_unicode)
    project.write("pyproject.toml", "")
    name = os.fsdecode(b"h\xc3\xbc 'with' \"$quotes\"\nnew line" + not_unicode)
    project.home = project.home.rename(project.root / name)

    # A relative home is below where the process began. The second time home and store exist.
    for home in (name, str(project.home)):
        printed = project.script(WHERE, KINETIC_HOME=home, KINETIC_STORE="kept")
        assert printed == "['host-0', 'project']\n"

    assert len(list((project.root / "kept" / "contexts").iterdir())) == 1
    assert listed(project) == {}


@pytest.fixture
def nobody(project) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return what runs `main.py` as a user whom the system knows only by number."""
    may_go_anywhere = "+dac_override,+dac_read_search"  # Where Python is installed, for instance.
    become = ["setpriv", "--reuid=54321", "--clear-groups"]
    become += [f"--inh-caps={may_go_anywhere}", f"--ambient-caps={may_go_anywhere}"]
    if os.getuid() != 0 or not shutil.which("setpriv"):
        pytest.skip("only root can become another user, by setpriv")

    def run(text: str, **environment: str) -> subprocess.CompletedProcess[str]:
        project.write("main.py", text)
        return subprocess.run(
            [*become, sys.executable, "main.py"],
            cwd=project.root,
            env={"PATH": os.environ["PATH"], "KINETIC_BACKEND": "local", **environment},  # noqa: TID251
            capture_output=True,
            text=True,
            check=False,
        )

    tried = run("import kinetic")
    if tried.returncode:
        pytest.skip(f"Kinetic cannot be imported by another user here: {tried.stderr}")
    return run


SUBMITTED_BY_NOBODY = """
    import kinetic, os

    @kinetic.run(accelerator="cpu")
    def work():
        return os.getuid()

    if __name__ == "__main__":
        if "KINETIC_HOME" in os.environ:
            print(work.run_async().result())
        else:
            for home, store in (("", ""), ("~/k", ""), ("k", "~/store")):
                os.environ |= {"KINETIC_HOME": home, "KINETIC_STORE": store}
                try:
                    work.run_async()
                except kinetic.KineticError as error:
                    print(error)
"""


def test_a_user_without_a_home_folder_has_jobs_in_the_home_that_is_named(project, nobody) -> None:
    home = project.home.rename(project.root / "home")
    for path in (home, *home.rglob("*")):
        os.chown(path, 54321, -1)
    done = nobody(SUBMITTED_BY_NOBODY, KINETIC_HOME="home")
    assert done.stdout == "54321\n", done.stderr


def test_a_user_without_a_home_folder_is_advised_what_to_set(nobody) -> None:
    done = nobody(SUBMITTED_BY_NOBODY)

    assert done.stderr == ""
    assert done.stdout.count("home folder") == 3
    assert done.stdout.count("Set KINETIC_HOME") + done.stdout.count("without ~") == 3


# Without permissions.


def test_a_read_only_project_is_shipped_and_an_unreadable_file_is_named(project) -> None:
    project.write("main.py", WHERE)
    secret = project.write("secret.txt", "x")
    run = unprivileged(sys.executable, "main.py")
    project.root.chmod(0o555)
    try:
        readable = project.execute(*run)
        secret.chmod(0)
        unreadable = project.execute(*run)
    finally:
        project.root.chmod(0o755)

    assert readable.stdout == "['host-0', 'project']\n", readable.stderr
    assert "PackagingError" in unreadable.stderr
    assert "'secret.txt': Permission denied" in unreadable.stderr


# Killed, hung up, interrupted.


def test_submits_killed_at_any_moment_are_listed_as_they_ended_and_can_be_cleaned_up(
    project,
) -> None:
    project.write("main.py", BLOCKING)
    began = time.monotonic()
    assert project.run("main.py", "").stdout == "up\nvalue\n"
    took = time.monotonic() - began
    moments = random.Random(7)
    for _ in range(5):
        process = project.start("main.py", "")
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(moments.uniform(0.3, 0.9) * took)
        process.kill()
        process.communicate()

    eventually(lambda: set(listed(project).values()) <= {"SUCCEEDED", "FAILED"})

    done = project.run("-c", "import kinetic; [job.cleanup() for job in kinetic.list_jobs()]")
    assert done.returncode == 0, done.stderr
    assert listed(project) == {}
    assert [name for name in os.listdir(project.home / "jobs") if not name.startswith(".")] == []
    assert project.run("main.py", "").stdout == "up\nvalue\n"


def test_a_job_outlives_signals_to_the_process_that_waits_for_it(project) -> None:
    project.write("main.py", BLOCKING)
    gate = project.root / "gate"
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGKILL)
    waiting = [project.start("main.py", str(gate)) for _ in numbers]
    for process, number in zip(waiting, numbers, strict=True):
        assert process.stdout.readline() == "up\n"
        process.send_signal(number)

    errors = [process.communicate()[1] for process in waiting]

    assert [-process.returncode for process in waiting] == list(numbers)
    jobs = listed(project)
    assert list(jobs.values()) == ["RUNNING"] * 3
    [job_id] = [job_id for job_id in jobs if job_id in errors[1]]
    assert f'kinetic.attach("{job_id}").result()' in errors[1]
    assert f"kinetic jobs cancel {job_id}" in errors[1]
    # The advice is not scrolled away by a traceback through our code.
    assert errors[1].count('File "') <= 3
    gate.touch()
    eventually(lambda: listed(project) == dict.fromkeys(jobs, "SUCCEEDED"), every=1)
