"""Whoever submits: many at once, in odd places, without rights or room, and killed at any moment."""

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
from pathlib import Path

import pytest

from kinetic.testing import eventually

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
    """Return the status of each job, as the command line says it."""
    done = subprocess.run(
        [sys.executable, "-m", "kinetic_cli", "jobs", "list", "--json"],
        env=project.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return {job["job_id"]: job["status"] for job in json.loads(done.stdout)}


def unprivileged(*command: str) -> list[str]:
    """Return *command* such that permissions mean something to it, also if root runs the tests."""
    if os.getuid() != 0:
        return list(command)
    less = ["setpriv", "--inh-caps=-all", "--bounding-set=-all"]
    if not shutil.which("setpriv") or subprocess.run([*less, "true"], check=False).returncode:
        pytest.skip("root, and no setpriv to be less")
    return [*less, *command]


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
            threads = [threading.Thread(target=one, args=[x]) for x in range(first, first + 4)]
            for thread in threads: thread.start()
            for thread in threads: thread.join()
            print(found == {x: (x * x, f"line {x}\\n") for x in range(first, first + 4)})
    """,
    )
    processes = [project.start("main.py", str(4 * n)) for n in range(5)]

    ends = [process.communicate() for process in processes]

    assert ends == [("True\n", "")] * 5
    assert list(listed(project).values()) == ["SUCCEEDED"] * 20


# Odd places.

WHERE = """
import kinetic, os

@kinetic.run(accelerator="cpu")
def work():
    return os.path.relpath(os.getcwd(), os.environ["KINETIC_HOME"]).split(os.sep)[-2:]

if __name__ == "__main__":
    print(work.run_async().result())
"""


@pytest.mark.parametrize("home", ["a home ü 'with' \"$quotes\"", "new\nline", "project/.kinetic"])
def test_the_home_may_be_called_anything_and_lie_in_the_project(project, home: str) -> None:
    project.home = project.root.parent / home

    for _ in range(2):  # The second time the home is there, and is no part of the snapshot.
        assert project.script(WHERE) == "['host-0', 'project']\n"

    assert len(list((project.home / "store" / "contexts").iterdir())) == 1
    assert listed(project) == {}


def test_a_store_in_the_project_is_no_part_of_it(project) -> None:
    for _ in range(2):
        assert project.script(WHERE, KINETIC_STORE="kept") == "['host-0', 'project']\n"

    assert len(list((project.root / "kept" / "contexts").iterdir())) == 1


@pytest.mark.parametrize("closed", ["<&- >&-", "<&- 2>&-", "<&- >&- 2>&-"])
def test_standard_streams_may_be_closed(project, closed: str) -> None:
    project.write(
        "main.py",
        """
        import kinetic, signal

        @kinetic.run(accelerator="cpu")
        def work(x):
            print("said")
            return x, signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN

        if __name__ == "__main__":
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)
            job = work.run_async(1)
            with open("result", "w") as stream:
                stream.write(f"{job.result(cleanup=False)} {job.logs()}")
        """,
    )
    command = f'exec "{sys.executable}" main.py {closed}'
    subprocess.run(["sh", "-c", command], cwd=project.root, env=project.environment, check=True)
    assert (project.root / "result").read_text() == "(1, False) said\n"


@pytest.fixture
def nobody(project) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return what runs `main.py` as a user of whom the system knows nothing but a number."""
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
        try:
            print(work.run_async().result())
        except kinetic.KineticError as error:
            print(error)
"""


def test_a_user_without_a_home_folder_has_jobs_in_the_home_that_is_named(nobody) -> None:
    done = nobody(SUBMITTED_BY_NOBODY, KINETIC_HOME="home")
    assert done.stdout == "54321\n", done.stderr


@pytest.mark.parametrize(
    "named",
    [{}, {"KINETIC_HOME": "~/k"}, {"KINETIC_HOME": "k", "KINETIC_STORE": "~/store"}],
)
def test_a_user_without_a_home_folder_is_told_what_to_set(nobody, named: dict[str, str]) -> None:
    done = nobody(SUBMITTED_BY_NOBODY, **named)
    assert done.stderr == ""
    assert "home folder" in done.stdout
    assert "Set KINETIC_HOME" in done.stdout or "without ~" in done.stdout


def test_a_relative_home_is_below_where_the_process_began(project) -> None:
    assert project.script(WHERE, KINETIC_HOME="beside") == "['host-0', 'project']\n"
    assert (project.root / "beside" / "store").is_dir()


def test_names_that_are_no_unicode_are_carried_through(project) -> None:
    if sys.platform == "darwin":
        pytest.skip("its file systems have no such names")
    project.home = project.root.parent / os.fsdecode(b"h\xff")
    project.root = project.root.parent / os.fsdecode(b"p\xfe")
    project.write("pyproject.toml", "")

    printed = project.script(
        WHERE.replace("print(", "job = work.run_async(); kinetic.attach(job.job_id); print(")
    )

    assert printed == "['host-0', 'project']\n"
    eventually(lambda: list(listed(project).values()) == ["SUCCEEDED"])


def test_from_the_root_and_from_a_deleted_folder(project) -> None:
    project.write("main.py", WHERE)
    assert project.run("main.py", cwd=Path("/")).stdout == "['host-0', 'project']\n"
    gone = project.root.parent / "gone"
    gone.mkdir()
    script = str(project.root / "main.py")
    code = f"import os, runpy; os.rmdir({str(gone)!r}); runpy.run_path({script!r}, run_name='__main__')"

    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=gone,
        env=project.environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert "ConfigurationError: The working directory of this process was deleted" in done.stderr
    assert "Change to a folder that is there" in done.stderr


# Without rights, without room.


def test_a_project_that_may_only_be_read_is_fine_and_what_may_not_is_named(project) -> None:
    project.write("main.py", WHERE)
    secret = project.write("secret.txt", "x")
    run = unprivileged(sys.executable, "main.py")
    project.root.chmod(0o555)
    try:
        readable = subprocess.run(
            run, cwd=project.root, env=project.environment, capture_output=True, text=True
        )
        secret.chmod(0)
        unreadable = subprocess.run(
            run, cwd=project.root, env=project.environment, capture_output=True, text=True
        )
    finally:
        project.root.chmod(0o755)

    assert readable.stdout == "['host-0', 'project']\n", readable.stderr
    assert "PackagingError" in unreadable.stderr
    assert "'secret.txt': Permission denied" in unreadable.stderr


def test_a_home_that_cannot_be_written_is_said_with_the_way_out(project) -> None:
    project.write("main.py", WHERE)
    project.home.chmod(0o555)
    locked = subprocess.run(
        unprivileged(sys.executable, "main.py"),
        cwd=project.root,
        env={**project.environment, "KINETIC_HOME": str(project.home / "below")},
        capture_output=True,
        text=True,
    )
    in_the_way = project.run("main.py", KINETIC_HOME=str(project.root / "main.py"))

    assert "Permission denied" in locked.stderr
    assert "main.py" in in_the_way.stderr.splitlines()[-2]
    for done in (locked, in_the_way):
        assert "another folder" in done.stderr.splitlines()[-1]
        assert "KINETIC_HOME" in done.stderr.splitlines()[-1]


def on_a_disk_of(size: str, folder: Path, *command: str) -> list[str]:
    """Return *command* such that it sees a small disk at *folder*, which nobody else sees."""
    if not shutil.which("unshare"):
        pytest.skip("no private mounts here")
    folder.mkdir(exist_ok=True)
    mount = f'mount -t tmpfs -o mode=700,size={size} none "$0" && exec "$@"'
    return ["unshare", "--mount", "sh", "-c", mount, str(folder), *command]


@pytest.mark.parametrize("size", ["100k", "600k"])
def test_a_full_disk_is_said_and_leaves_nothing_half_done(project, size: str) -> None:
    project.write(
        "main.py",
        """
        import os
        import kinetic
        from kinetic.jobs.discover import list_jobs

        @kinetic.run(accelerator="cpu")
        def work():
            return os.urandom(4_000_000)

        if __name__ == "__main__":
            try:
                work.run_async().result()
            except kinetic.KineticError as error:
                print(type(error).__name__, error)
            print("left", len(list_jobs()))
    """,
    )
    command = on_a_disk_of(size, project.home, sys.executable, "main.py")
    if subprocess.run([*command[:-2], "true"], capture_output=True, check=False).returncode:
        pytest.skip("no private mounts here")

    done = subprocess.run(
        command, cwd=project.root, env=project.environment, capture_output=True, text=True
    )

    assert "KINETIC_HOME" in done.stdout, done.stdout + done.stderr
    assert done.stdout.endswith("left 0\n")


# Killed, hung up, interrupted.


def test_a_submit_killed_at_any_moment_leaves_a_truthful_list_and_nothing_in_the_way(
    project,
) -> None:
    project.write("main.py", BLOCKING)
    began = time.monotonic()
    assert project.run("main.py", "").stdout == "up\nvalue\n"
    took = time.monotonic() - began
    moments = random.Random(7)
    for _ in range(10):
        process = project.start("main.py", "")
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(moments.uniform(0.3, 0.9) * took)
        process.kill()
        process.communicate()

    eventually(lambda: set(listed(project).values()) <= {"SUCCEEDED", "FAILED"})

    done = subprocess.run(
        [sys.executable, "-c", "import kinetic; [job.cleanup() for job in kinetic.list_jobs()]"],
        env=project.environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert listed(project) == {}
    assert [name for name in os.listdir(project.home / "jobs") if not name.startswith(".")] == []
    assert project.run("main.py", "").stdout == "up\nvalue\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGKILL])
def test_a_job_outlives_whatever_ends_the_process_that_waits_for_it(project, number: int) -> None:
    project.write("main.py", BLOCKING)
    gate = project.root / "gate"
    process = project.start("main.py", str(gate))
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"

    process.send_signal(number)
    _, err = process.communicate()

    assert process.returncode == -number
    [(job_id, status)] = listed(project).items()
    assert status == "RUNNING"
    if number == signal.SIGINT:
        assert f'kinetic.attach("{job_id}").result()' in err
        assert f"kinetic jobs cancel {job_id}" in err
        # What was said is not pushed off the screen by where in our code we waited.
        assert err.count('File "') <= 3
    gate.touch()
    eventually(lambda: listed(project) == {job_id: "SUCCEEDED"})
