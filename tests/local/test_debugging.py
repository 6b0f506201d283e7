"""A job that waits for a debugger."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from dap_client import Editor, configuration_from

from kinetic.backends.backend import LogLine
from kinetic.errors import JobError
from kinetic.jobs.debugging import announced_in, configuration_of
from kinetic.jobs.handle import JobHandle
from kinetic_runner.child.debugger import Listening, listening_line

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
    configuration, shown = configuration_from(process.stderr)

    assert stops(configuration, debugged) == expected(debugged)

    out, err = process.communicate()
    assert process.returncode == 0, out + err
    assert "value 42" in out
    assert (shown + err).count("launch.json") == 1


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


def test_the_configuration_leads_to_the_root_of_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "project" / "deep" / "down"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    handle = JobHandle(*13 * [""])

    def root(where: str, **options: str) -> object:
        listening = announced_in(LogLine(listening_line(Listening(1, "/there", where))))
        assert listening is not None
        found = configuration_of(handle, listening, port=1, **options)
        return found["pathMappings"][0]["localRoot"]

    assert root("deep/down") == str(tmp_path / "project")
    assert root("elsewhere") == root("") == str(folder)
    assert root("", working_dir="${workspaceFolder}") == "${workspaceFolder}"


def test_a_job_without_debug_is_refused_with_advice() -> None:
    with pytest.raises(JobError, match="was not submitted with debug=True") as caught:
        JobHandle(*13 * [""]).debug_attach()
    assert "@kinetic.run(..., debug=True)" in str(caught.value.hint)


def test_on_several_hosts_the_leader_is_debugged_and_the_others_wait_for_it(debugged) -> None:
    debugged.write(
        "main.py",
        """
        import kinetic
        from helper import double

        @kinetic.run(accelerator="v4-8", backend="local-gke", debug=True)
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
    assert out == "value (42, 2)\n", err
