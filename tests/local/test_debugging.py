"""A job that waits for a debugger, driven by the least of an editor's side of its protocol."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("debugpy")

PROJECT = Path(__file__).parent / "projects" / "debugging"
IN_WORK = (PROJECT / "main.py").read_text().splitlines().index("    y = double(x)") + 1
IN_HELPER = (PROJECT / "helper.py").read_text().splitlines().index("    return twice") + 1


class Editor:
    """One debugging session with a job, by the configuration that Kinetic printed."""

    def __init__(self, configuration: dict[str, Any]) -> None:
        connect = configuration["connect"]
        self._socket = socket.create_connection((connect["host"], connect["port"]))
        self._stream = self._socket.makefile("rb")
        self._passed: list[dict[str, Any]] = []
        self._sent = 0
        self.ask("initialize", adapterID="debugpy", pathFormat="path", linesStartAt1=True)
        self.tell("attach", **configuration)
        self.event("initialized")

    def tell(self, command: str, **arguments: Any) -> int:
        self._sent += 1
        body = {"seq": self._sent, "type": "request", "command": command, "arguments": arguments}
        data = json.dumps(body).encode()
        self._socket.sendall(b"Content-Length: %d\r\n\r\n" % len(data) + data)
        return self._sent

    def ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        number = self.tell(command, **arguments)
        message = self._next(type="response", request_seq=number)
        assert message["success"], message
        return message.get("body") or {}

    def event(self, name: str) -> dict[str, Any]:
        return self._next(type="event", event=name).get("body") or {}

    def _next(self, **wanted: object) -> dict[str, Any]:
        """Return the next message that is as *wanted*; what comes before it is kept for later.

        The function may stop before the answer is here that lets it go on.
        """
        others = []
        while True:
            message = self._passed.pop(0) if self._passed else self._read()
            if all(message.get(key) == value for key, value in wanted.items()):
                self._passed = others + self._passed
                return message
            others.append(message)

    def stops_at(self) -> tuple[str, int, str]:
        """Wait for a stop; return the file and the line, and what the function's *x* is there."""
        thread = self.event("stopped")["threadId"]
        top = self.ask("stackTrace", threadId=thread, levels=1)["stackFrames"][0]
        seen = self.ask("evaluate", expression="x", frameId=top["id"], context="watch")["result"]
        self.tell("continue", threadId=thread)
        return top["source"]["path"], top["line"], seen

    def _read(self) -> dict[str, Any]:
        size = 0
        while (line := self._stream.readline()) != b"\r\n":
            assert line, "The debugger closed the connection."
            if line.lower().startswith(b"content-length:"):
                size = int(line.split(b":")[1])
        message: dict[str, Any] = json.loads(self._stream.read(size))
        return message

    def close(self) -> None:
        self._stream.close()
        self._socket.close()


def configuration_from(stream: Any) -> tuple[dict[str, Any], str]:
    """Read *stream* up to the end of the printed configuration; return it, and all of the text."""
    text = ""
    while not text.endswith("\n}\n"):
        line = stream.readline()
        assert line, text
        text += line
    configuration: dict[str, Any] = json.loads(text[text.index("{\n") :])
    return configuration, text


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
    process = debugged.start("main.py", "call")
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
        from kinetic.jobs.debugging import announcement_in
        from kinetic.jobs.handle import JobHandle
        from kinetic_runner.child.debugger import Listening, listening_line

        handle = JobHandle(*13 * [""])
        for where in ("deep/down", "elsewhere", ""):
            line = LogLine(listening_line(Listening(1, "/there", where)))
            print(announcement_in(line, handle))
        print(announcement_in(line, handle, "${workspaceFolder}"))
    """
    debugged.write("deep/down/look.py", code)

    done = debugged.run("deep/down/look.py", cwd=folder)

    roots = re.findall(r'"localRoot": "(.*)"', done.stdout)
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
