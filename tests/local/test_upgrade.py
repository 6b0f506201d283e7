"""Kinetic is upgraded or removed while a job of the old one runs: the job goes on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import psutil

import kinetic
import kinetic_payload
import kinetic_runner
from kinetic.testing import eventually

SCRIPT = """
import kinetic, os, sys, time

@kinetic.run(accelerator="cpu", retries=2)
def work(gate):
    print("up", flush=True)
    while not os.path.exists(gate):
        time.sleep(0.02)
    if os.environ["KINETIC_ATTEMPT"] == "1":
        raise ValueError("the first")
    return "the second"

if __name__ == "__main__":
    assert kinetic.__file__.startswith(sys.argv[2]), kinetic.__file__
    print(work.run_async(sys.argv[1]).job_id)
"""


def test_retries_and_the_outcome_survive_the_removal_of_the_packages(
    project, tmp_path: Path
) -> None:
    installed, gate, loaded = tmp_path / "installed", tmp_path / "gate", tmp_path / "loaded"
    for package in (kinetic, kinetic_payload, kinetic_runner):
        source = Path(package.__file__).parent
        copy = installed / source.name
        shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for module in (
        "kinetic/backends/local/supervisor/report",
        "kinetic_payload/progress",
        "kinetic_payload/records/pending_uploads",
        "kinetic_payload/stores/folder/store",
    ):
        assert (installed / f"{module}.py").is_file()
        with (installed / f"{module}.py").open("a") as stream:
            note = f"{{__import__('os').getpid()}} {module}\\n"
            stream.write(f"\nwith open({str(loaded)!r}, 'a') as _f: _f.write(f{note!r})\n")
    job_id = project.script(SCRIPT, str(gate), str(installed), PYTHONPATH=str(installed)).strip()

    state = project.home / "jobs" / job_id / "state.json"
    eventually(state.exists)
    runner = json.loads(state.read_text())["attempts"][0]["pids"][0]
    supervisor = psutil.Process(runner).ppid()
    eventually(lambda: loaded.read_text().count(f"{supervisor} ") == 4)
    shutil.rmtree(installed)
    gate.touch()

    collect = f"import kinetic; job = kinetic.attach({job_id!r}); print(job.result(cleanup=False))"
    project.write("collect.py", collect + "\nprint([host.attempt for host in job.outcome().hosts])")
    done = project.run("collect.py")
    assert (done.stdout, done.stderr) == ("the second\n[1, 2]\n", "")
    assert not (state.parent / "supervisor.log").read_text()
    eventually(lambda: not psutil.pid_exists(supervisor))
