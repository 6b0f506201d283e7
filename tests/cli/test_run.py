"""`kinetic run`: a script without a decorator, as a job; `jobs exec` and `shell`: commands in it."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from typing import Any

from kinetic.testing import eventually

SCRIPT = """
import os, sys
import helper

class Kept:
    pass

print(sys.argv[1:], __name__, helper.X, os.path.basename(os.getcwd()), os.environ["RATE"])
print("to stderr", file=sys.stderr)
assert sys.path[0] == os.path.dirname(__file__) == os.path.dirname(sys.argv[0])
assert sys.modules["__main__"].Kept is Kept
if "boom" in sys.argv:
    raise ValueError("boom")
if "at once" in sys.argv:
    os._exit(5)
sys.exit("3" if "text" in sys.argv else int(sys.argv[1]))
"""


def test_a_script_runs_as_python_would_run_it_and_its_exit_code_is_that_of_the_command(
    laptop: Any,
) -> None:
    (laptop.project / "deep").mkdir()
    (laptop.project / "pyproject.toml").touch()
    (laptop.project / "deep" / "script.py").write_text(SCRIPT)
    (laptop.project / "deep" / "helper.py").write_text("X = 3")
    laptop.environment["RATE"] = "1"

    def run(*words: str) -> Any:
        options = ("--accelerator", "cpu", "--capture-env-vars", "RATE", "--labels", "team=vision")
        return laptop.kinetic("run", *options, *words)

    left = run("deep/script.py", "3", "--accelerator=x")
    assert left.stdout.splitlines()[0] == "['3', '--accelerator=x'] __main__ 3 project 1", left
    assert "to stderr\n" in left.stdout + left.stderr
    assert left.returncode == 3
    job_id = left.stderr.split()[-1]
    assert laptop.kinetic("jobs", "status", job_id).stdout.count("FAILED")
    assert run("deep/script.py", "0").returncode == 0

    (laptop.project / "link.py").symlink_to("deep/script.py")
    codes = [run("link.py", end).returncode for end in ("text", "at once", "-1")]
    assert codes == [1, 5, 255]

    raised = run("deep/script.py", "boom")
    assert raised.returncode == 1
    assert f'File "{laptop.project}/deep/script.py", line 13, in <module>' in raised.stderr
    assert raised.stderr.count("File ") == 1

    started = run("--detach", "deep/script.py", "0")
    assert laptop.kinetic("jobs", "result", started.stdout.strip()).stdout == "None\n"
    assert "is not NAME=VALUE" in run("--labels", "x", "deep/script.py").stderr
    assert "does not exist" in run("none.py").stderr


def test_with_quiet_anywhere_notes_and_progress_go_and_errors_stay(laptop: Any) -> None:
    (laptop.project / "script.py").write_text("import sys\nprint(1)\nsys.exit(int(sys.argv[1]))")
    run = ("run", "--accelerator", "cpu")
    quiet = laptop.kinetic("--quiet", *run, "script.py", "0")
    assert (quiet.stdout, quiet.stderr) == ("1\n", "")
    assert "exited with 3" in laptop.kinetic(*run, "--quiet", "script.py", "3").stderr

    job_id = laptop.kinetic(*run, "--detach", "--quiet", "script.py", "0").stdout.strip()
    assert "is kept" in laptop.kinetic("jobs", "result", job_id, "--no-cleanup").stderr
    replayed = laptop.kinetic("jobs", "replay", job_id, "--quiet")
    assert (replayed.stdout, replayed.stderr) == ("1\nNone\n", "")
    result = laptop.kinetic("jobs", "result", job_id, "--quiet")
    assert (result.stdout, result.stderr) == ("None\n", "")
    assert "Error: " in laptop.kinetic("--quiet", "jobs", "result", job_id).stderr


def test_commands_and_a_shell_in_a_running_job_have_its_variables_and_their_own_exit_codes(
    laptop: Any,
) -> None:
    # Two hosts.
    where = ("--accelerator", "v5p-8", "--backend", "local-gke", "--capture-env-vars", "RATE")
    laptop.environment["RATE"] = "7"
    (laptop.project / "wait.py").write_text("import time\nprint('up', flush=True)\ntime.sleep(600)")
    running = laptop.kinetic("run", "--detach", *where, "wait.py").stdout.strip()
    laptop.submitted.append(running)
    logs = laptop.home / "jobs" / running / "attempt-1"
    eventually(lambda: [path.read_text() for path in logs.glob("host-*.log")] == ["up\n"] * 2)

    show = "cat - && ls && echo $RATE $KINETIC_HOST_INDEX $KINETIC_JOB_ID && echo no >&2 && exit 5"
    asked = subprocess.run(
        [sys.executable, "-m", "kinetic_cli", "jobs", "exec", "--host", "1", running, "--", "sh", "-c", show],
        input="given\n", env=laptop.environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert asked.stdout.splitlines() == ["given", "main.py", "wait.py", f"7 1 {running}"], asked
    assert (asked.stderr, asked.returncode) == ("no\n", 5)

    def refusal(*words: str) -> str:
        done = laptop.kinetic("jobs", *words)
        assert done.returncode == 1
        return str(done.stderr)

    assert "its last one is host 1" in refusal("exec", running, "--host", "2", "--", "ls").lower()
    assert "'no-such' could not be started" in refusal("exec", running, "no-such")
    assert f"kinetic jobs exec {running} -- COMMAND" in refusal("shell", running)

    ours, its = pty.openpty()
    shell = subprocess.Popen(
        [sys.executable, "-m", "kinetic_cli", "jobs", "shell", running],
        env=laptop.environment, stdin=its, stdout=its, stderr=its, start_new_session=True,
    )  # fmt: skip
    os.close(its)
    os.write(ours, b"test -t 0 && echo rate=$RATE; exit 4\n")
    assert shell.wait(60) == 4
    assert b"rate=7" in os.read(ours, 65536)
    os.close(ours)

    waiting = laptop.start(
        "jobs", "exec", running, "--", "sh", "-c", "trap '' HUP; echo on; sleep 99"
    )
    assert waiting.stdout.readline() == "on\n"
    laptop.kinetic("jobs", "cancel", running)
    assert waiting.wait(60) == 137
    assert "is FAILED: a command can run in it only while it is RUNNING" in refusal(
        "exec", running, "ls"
    )
