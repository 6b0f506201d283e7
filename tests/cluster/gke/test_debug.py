"""Debugging jobs on a real cluster, with debugpy in the pod and an editor's protocol here."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from dap_client import Editor, configuration_from

PROJECT = Path(__file__).parent / "projects" / "debugging"
IN_MAIN = (PROJECT / "main.py").read_text().splitlines().index("    y = double(x)") + 1
IN_HELPER = (PROJECT / "helper.py").read_text().splitlines().index("    return twice") + 1


@pytest.fixture
def debugged(project: Any, copy_project: Any) -> Any:
    copy_project("debugging", project.root)
    return project


@pytest.fixture
def submitted(debugged: Any) -> Iterator[str]:
    """The id of a job that waits for a debugger."""
    done = debugged.run("main.py", "submit")
    assert done.returncode == 0, done.stderr
    job_id = done.stdout.strip()
    yield job_id
    debugged.kinetic("jobs", "cleanup", job_id)


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def stops(configuration: dict[str, Any], root: Path) -> list[tuple[str, int, str]]:
    """Attach with breakpoints in both of the user's files; return where the function stops."""
    editor = Editor(configuration)
    try:
        for path, line in ((root / "main.py", IN_MAIN), (root / "helper.py", IN_HELPER)):
            answer = editor.ask(
                "setBreakpoints", source={"path": str(path)}, breakpoints=[{"line": line}]
            )
            assert [one["verified"] for one in answer["breakpoints"]] == [True], answer
        editor.ask("configurationDone")
        return [editor.stops_at(), editor.stops_at()]
    finally:
        editor.close()


def expected(root: Path) -> list[tuple[str, int, str]]:
    return [
        (str(root / "main.py"), IN_MAIN, "21"),
        (str(root / "helper.py"), IN_HELPER, "21"),
    ]


def test_a_blocking_call_forwards_by_itself_and_its_job_is_kept(
    debugged: Any, wait_for: Any
) -> None:
    refused = debugged.run("main.py", "call")
    process = debugged.start("main.py", "call", environment={"KINETIC_NO_TTY_DEBUG": "1"})
    configuration, told = configuration_from(process.stderr)

    assert stops(configuration, debugged.root) == expected(debugged.root)

    out, err = process.communicate()
    assert (process.returncode, out) == (0, "value 42\n"), err
    job_id = told.split("jobs logs --follow ")[1].split()[0]
    log = debugged.kinetic("jobs", "logs", job_id)
    assert "in the function" in log
    assert "frozen modules" not in log
    # The kubelet reports the end of a container some time after the outcome.
    wait_for(
        lambda: [pod["status"]["phase"] for pod in debugged.objects("pod", job_id)] == ["Succeeded"]
    )
    assert forwarders(debugged) == []
    debugged.kinetic("jobs", "cleanup", job_id)
    assert refused.returncode == 1
    assert "KINETIC_NO_TTY_DEBUG=1" in refused.stderr
    assert debugged.kept(job_id) == []


def test_another_machine_attaches_and_its_forwarder_can_be_stopped(
    debugged: Any, submitted: str, port: int, tmp_path: Path
) -> None:
    elsewhere = {"KINETIC_HOME": str(tmp_path / "other")}
    attached = debugged.start("main.py", "attach", submitted, str(port), environment=elsewhere)
    configuration, _ = configuration_from(attached.stdout)
    assert configuration["connect"] == {"host": "127.0.0.1", "port": port}
    # Somebody else may have the port.
    second = debugged.run("main.py", "attach", submitted, str(port), **elsewhere)

    assert stops(configuration, debugged.root) == expected(debugged.root)

    out, err = attached.communicate()
    assert attached.returncode == 0, out + err
    assert "value 42\nforward True job SUCCEEDED\ntoo late: Job cpu-function-" in out
    assert f"Port {port} of this machine cannot be used" in second.stderr
    assert forwarders(debugged) == []


def test_ctrl_c_or_a_kill_of_the_command_leaves_the_job_waiting(
    debugged: Any, submitted: str, port: int, wait_for: Any
) -> None:
    command = ["-m", "kinetic_cli", "jobs", "debug", submitted, "--port", str(port)]
    for end in (signal.SIGINT, signal.SIGKILL):
        process = debugged.start(*command)
        configuration, _text = configuration_from(process.stdout)
        assert "Waiting until" in process.stderr.readline()
        assert len(forwarders(debugged)) == 1
        process.send_signal(end)
        out, err = process.communicate()
        assert "Traceback" not in out + err
        if end == signal.SIGINT:
            assert (process.returncode, f"{submitted} keeps running" in err) == (130, True), err
            assert forwarders(debugged) == []
        wait_for(lambda: forwarders(debugged) == [])
    assert debugged.kinetic("jobs", "status", submitted).split()[1] == "RUNNING"

    process = debugged.start(*command)
    configuration, _text = configuration_from(process.stdout)
    assert stops(configuration, debugged.root) == expected(debugged.root)
    out, err = process.communicate()

    assert process.returncode == 0, err
    assert f"{submitted} has SUCCEEDED" in out
    assert debugged.kinetic("jobs", "result", submitted) == "42\n"


def test_after_an_eviction_the_same_port_leads_to_the_next_attempt(
    debugged: Any, look: Any
) -> None:
    process = debugged.start("main.py", "call", environment={"KINETIC_NO_TTY_DEBUG": "1"})
    first, told = configuration_from(process.stderr)
    job_id = told.split("jobs logs --follow ")[1].split()[0]
    (pod,) = debugged.objects("pod", job_id)
    look.evict(pod["metadata"]["name"])
    second, _ = configuration_from(process.stderr)

    assert stops(first, debugged.root) == expected(debugged.root)

    out, err = process.communicate()
    assert (process.returncode, out) == (0, "value 42\n"), err
    assert first == second
    debugged.kinetic("jobs", "cleanup", job_id)


def forwarders(project: Any) -> list[int]:
    """Return the forwarders that processes in the project's folder started."""
    return [
        process.pid
        for process in psutil.process_iter(["cmdline", "cwd"])
        if "kinetic.jobs.port_forwarder" in (process.info["cmdline"] or ())
        and process.info["cwd"] == str(project.root)
    ]
