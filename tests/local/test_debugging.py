"""A job that waits for a debugger."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from dap_client import Editor, configuration_from

pytest.importorskip("debugpy")

PROJECT = Path(__file__).parent / "projects" / "debugging"
IN_WORK = (PROJECT / "main.py").read_text().splitlines().index("    y = double(x)") + 1
IN_HELPER = (PROJECT / "helper.py").read_text().splitlines().index("    return twice") + 1


def stops(configuration: dict[str, Any], project: Any) -> list[tuple[str, int, str]]:
    editor = Editor(configuration)
    try:
        for path, line in (
            (project.root / "main.py", IN_WORK),
            (project.root / "helper.py", IN_HELPER),
        ):
            set_there = editor.ask(
                "setBreakpoints", source={"path": str(path)}, breakpoints=[{"line": line}]
            )
            assert [one["verified"] for one in set_there["breakpoints"]] == [True], set_there
        editor.ask("configurationDone")
        return [editor.stops_at(), editor.stops_at()]
    finally:
        editor.close()


@pytest.fixture
def debugged(project):
    project.copy("debugging")
    return project


def expected(project: Any) -> list[tuple[str, int, str]]:
    return [
        (str(project.root / "main.py"), IN_WORK, "21"),
        (str(project.root / "helper.py"), IN_HELPER, "21"),
    ]


def test_breakpoints_in_the_users_own_files_stop_a_blocking_call(debugged) -> None:
    process = debugged.start("main.py", "call", KINETIC_NO_TTY_DEBUG="1")
    configuration, said = configuration_from(process.stderr)

    assert stops(configuration, debugged) == expected(debugged)

    out, err = process.communicate()
    assert process.returncode == 0, out + err
    assert "value 42" in out
    assert (said + err).count("launch.json") == 1


def test_another_process_attaches_and_the_job_is_kept_afterwards(debugged) -> None:
    submitted = debugged.run("main.py", "submit")
    attached = debugged.start("main.py", "attach", submitted.stdout.strip())
    configuration, _ = configuration_from(attached.stdout)

    assert stops(configuration, debugged) == expected(debugged)

    out, err = attached.communicate()
    assert attached.returncode == 0, out + err
    assert "value 42" in out
    assert "kept SUCCEEDED" in out
    assert "too late: Job cpu-work-" in out


def test_from_a_folder_of_the_project_its_root_is_found(debugged) -> None:
    folder = debugged.root / "deep" / "down"
    folder.mkdir(parents=True)
    code = """
        import sys
        from kinetic.backends.backend import LogLine
        from kinetic.jobs.debugging import announced_in, configuration_of
        from kinetic.jobs.handle import JobHandle
        from kinetic_runner.child.debugger import Listening, listening_line

        handle = JobHandle(*13 * [""])
        for where in ("deep/down", "elsewhere", ""):
            line = LogLine(listening_line(Listening(1, "/there", where)))
            print(configuration_of(handle, announced_in(line), port=1))
        print(configuration_of(handle, announced_in(line), port=1, working_dir="${workspaceFolder}"))
    """
    debugged.write("deep/down/look.py", code)

    done = debugged.run("deep/down/look.py", cwd=folder)

    roots = re.findall(r"'localRoot': '(.*?)'", done.stdout)
    assert roots == [str(debugged.root), str(folder), str(folder), "${workspaceFolder}"]


def test_a_job_without_debug_is_refused_in_words(project) -> None:
    printed = project.script("""
        import kinetic

        @kinetic.run(accelerator="cpu")
        def work():
            return 1

        if __name__ == "__main__":
            job = work.run_async()
            try:
                job.debug_attach()
            except kinetic.JobError as error:
                print(error.message, error.hint, error.job_id == job.job_id)
            job.result()
    """)

    assert "was not submitted with debug=True" in printed
    assert "@kinetic.run(..., debug=True)" in printed
    assert "True" in printed


def test_on_several_hosts_the_leader_is_debugged_and_the_others_wait_for_it(debugged) -> None:
    debugged.write(
        "main.py",
        """
        import kinetic
        from helper import double

        @kinetic.run(accelerator="tpu-v5litepod-16", backend="local-gke", debug=True)
        def work(x):
            import jax
            y = double(x)
            return y, jax.process_count()

        if __name__ == "__main__":
            print("value", work(21))
        """,
    )
    process = debugged.start("main.py", KINETIC_NO_TTY_DEBUG="1")
    configuration, _ = configuration_from(process.stderr)

    editor = Editor(configuration)
    path = str(debugged.root / "helper.py")
    editor.ask("setBreakpoints", source={"path": path}, breakpoints=[{"line": IN_HELPER}])
    editor.ask("configurationDone")
    assert editor.stops_at() == (path, IN_HELPER, "21")
    editor.close()

    out, err = process.communicate()
    assert out == "value (42, 4)\n", err
