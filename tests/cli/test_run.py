"""`kinetic run`: a script without a decorator, as a job."""

from __future__ import annotations

from typing import Any

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
sys.exit(int(sys.argv[1]))
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

    raised = run("deep/script.py", "boom")
    assert raised.returncode == 1
    assert f'File "{laptop.project}/deep/script.py", line 13, in <module>' in raised.stderr
    assert raised.stderr.count("File ") == 1

    started = run("--detach", "deep/script.py", "0")
    assert laptop.kinetic("jobs", "result", started.stdout.strip()).stdout == "None\n"
    assert "is not NAME=VALUE" in run("--labels", "x", "deep/script.py").stderr
    assert "does not exist" in run("none.py").stderr
