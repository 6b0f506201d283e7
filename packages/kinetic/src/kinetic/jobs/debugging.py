"""Attach a debugger to a job: wait for debugpy, forward its port, print the settings for VS Code."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kinetic.backends.registry import entry_of
from kinetic.errors import InvalidRequestError, JobError
from kinetic.jobs.launch_json import Configuration, with_configuration
from kinetic.jobs.port_forwarder import LOOPBACK, listen, start_forwarder
from kinetic.settings.settings import expanded, working_folder

if TYPE_CHECKING:
    from kinetic.backends.backend import LogLine
    from kinetic.jobs.handle import JobHandle
    from kinetic_runner.child.debugger import Listening

DEFAULT_PORT: Final = 5678


@dataclass(frozen=True)
class DebugSession:
    """A job to which a debugger can attach, for as long as `process` runs."""

    process: subprocess.Popen[bytes]
    configuration: Configuration
    """For VS Code's launch.json."""

    @property
    def instructions(self) -> str:
        """The text that tells a user how to attach."""
        connect = self.configuration["connect"]
        return (
            f"debugpy waits on {connect['host']}:{connect['port']}. In VS Code, add this to launch.json "
            f"and start it:\n{json.dumps(self.configuration, indent=2)}"
        )

    @property
    def folder(self) -> Path:
        """The project's folder on this machine."""
        root = self.configuration["pathMappings"][0]["localRoot"]
        return working_folder() if _is_variable(root) else Path(root)


def open_session(
    handle: JobHandle, *, local_port: int = DEFAULT_PORT, working_dir: str | None = None
) -> DebugSession:
    """Wait until debugpy listens in *handle*'s job, and make it reachable on this machine.

    A job of the local backend listens on the loopback interface of this machine, so nothing is forwarded and
    *local_port* is ignored: the process only marks the session.

    Raises:
        JobError: It is not a debug job, it ended before debugpy was ready, or it runs on another machine.
        InvalidRequestError: The local port is taken.
    """
    if not handle.debug:
        raise JobError(
            f"Job {handle.job_id} was not submitted with debug=True.",
            hint="Submit it again with @kinetic.run(..., debug=True).",
            job_id=handle.job_id,
        )
    listener = None if entry_of(handle.backend).on_this_machine else listen(local_port)
    with listener or nullcontext():  # The forwarder has its own copy.
        for line in handle.log_lines(follow=True):
            listening = announced_in(line)
            if listening is not None and not handle.status().terminal:
                return _session_of(handle, listening, listener, working_dir)
    raise JobError(
        f"Job {handle.job_id} ended before a debugger could be attached.",
        hint=f"Its log: kinetic jobs logs {handle.job_id}",
        job_id=handle.job_id,
    )


class AttachedCall:
    """Lets debuggers attach to a job while a blocking call waits for it; *show* prints how to."""

    def __init__(self, handle: JobHandle, show: Callable[[str], None]) -> None:
        self._handle = handle
        self._show = show
        self._session: DebugSession | None = None

    def look_at(self, line: LogLine) -> None:
        """Open a session if *line* of the job's log announces that debugpy listens.

        Each attempt has such a line. A port that is forwarded leads to the current attempt.
        """
        listening = announced_in(line)
        if listening is None:
            return
        if self._session is None or entry_of(self._handle.backend).on_this_machine:
            self.close()
            self._session = self._open(listening)
        self._show(self._session.instructions)

    def _open(self, listening: Listening) -> DebugSession:
        if entry_of(self._handle.backend).on_this_machine:
            return _session_of(self._handle, listening, None, None)
        try:
            listener = listen(DEFAULT_PORT)
        except InvalidRequestError:
            listener = listen(0)  # Another session has the default port.
        with listener:
            return _session_of(self._handle, listening, listener, None)

    def close(self) -> None:
        """End the session, if there is one."""
        from kinetic.debug import cleanup_port_forward

        if self._session is not None:
            cleanup_port_forward(self._session.process)


def write_launch_json(session: DebugSession) -> Path:
    """Put the session's configuration into `.vscode/launch.json` of the project; return the file's path.

    Everything else in the file stays, comments too.

    Raises:
        InvalidRequestError: The file is not JSON with comments.
    """
    from kinetic_payload.files.atomic import prepare_beside, rename_into_place

    path = (session.folder / ".vscode" / "launch.json").resolve()
    before = path.read_text(encoding="utf-8") if path.exists() else None
    after = with_configuration(before, session.configuration)
    path.parent.mkdir(exist_ok=True)
    with prepare_beside(path) as folder:
        (folder / path.name).write_text(after, encoding="utf-8")
        rename_into_place(folder / path.name, path)
    return path


def announced_in(line: LogLine) -> Listening | None:
    """Return where the leader's debugger listens, if *line* of the job's log announces that."""
    from kinetic_runner.child.debugger import listening_in

    return listening_in(line.text) if line.host == 0 else None


def configuration_of(
    handle: JobHandle, listening: Listening, *, port: int, working_dir: str | None = None
) -> Configuration:
    """Return VS Code's configuration to attach on *port* to the debugger of *handle*'s job."""
    if working_dir and not _is_variable(working_dir):
        working_dir = str(expanded(working_dir, "working_dir").absolute())
    project = handle._session.project
    root = working_dir or (project and project.root)
    if not root:
        # Without the folder in which the function runs, if the working directory ends with it.
        root = working_folder()
        parts = Path(listening.folder).parts
        if parts and root.parts[-len(parts) :] == parts:
            root = root.parents[len(parts) - 1]
    return {
        "name": "Kinetic job",
        "type": "debugpy",
        "request": "attach",
        "connect": {"host": LOOPBACK, "port": port},
        "pathMappings": [{"localRoot": str(root), "remoteRoot": listening.project}],
        "justMyCode": True,
    }


def _session_of(
    handle: JobHandle,
    listening: Listening,
    listener: socket.socket | None,
    working_dir: str | None,
) -> DebugSession:
    forward = handle._services.backend.forward(handle._record)
    if forward is None or listener is None:
        port = listening.port
        # It ends when it is terminated, or when this process ends.
        process = subprocess.Popen(
            [sys.executable, "-S", "-c", "import sys; sys.stdin.read()"],
            stdin=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for this process.
        )
    else:
        port = listener.getsockname()[1]
        process = start_forwarder(handle._record, handle._settings, listener, listening.port)
    configuration = configuration_of(handle, listening, port=port, working_dir=working_dir)
    return DebugSession(process, configuration)


def _is_variable(folder: str) -> bool:
    """Return whether *folder* begins with a variable of VS Code."""
    return folder.startswith("${")
