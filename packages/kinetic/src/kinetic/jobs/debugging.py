"""Attach a debugger to a job: wait for debugpy, then print the settings for VS Code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kinetic.errors import JobError
from kinetic.settings.settings import expanded, working_folder

if TYPE_CHECKING:
    from kinetic.backends.backend import LogLine
    from kinetic.jobs.handle import JobHandle


def attach(
    handle: JobHandle,
    *,
    local_port: int,  # noqa: ARG001 - part of the contract; local jobs need no forwarding
    working_dir: str | None,
) -> subprocess.Popen[bytes]:
    """Wait until debugpy listens in *handle*'s job and print how to reach it.

    A job of the local backend listens on the loopback of this machine, so nothing is forwarded and
    *local_port* is ignored: the returned process only marks the session.

    Raises:
        JobError: It is not a debug job, or it ended before debugpy was ready.
    """
    if not handle.debug:
        raise _job_error(
            handle,
            f"Job {handle.job_id} was not submitted with debug=True.",
            "Submit it again with @kinetic.run(..., debug=True).",
        )
    for line in handle.log_lines(follow=True):
        announcement = announcement_in(line, handle, working_dir)
        if announcement is not None and not handle.status().terminal:
            break
    else:
        raise _job_error(
            handle,
            f"Job {handle.job_id} ended before a debugger could be attached.",
            f"Its log: kinetic jobs logs {handle.job_id}",
        )
    sys.stdout.write(f"{announcement}\n")
    sys.stdout.flush()
    return _session()


def announcement_in(line: LogLine, handle: JobHandle, working_dir: str | None = None) -> str | None:
    """Return the text to print if *line* of the job's log announces where its debugger listens."""
    from kinetic_runner.child.debugger import listening_in

    listening = listening_in(line.text) if line.host == 0 else None
    if listening is None:
        return None
    if working_dir and not working_dir.startswith("${"):  # It is a variable of VS Code.
        working_dir = str(expanded(working_dir, "working_dir").absolute())
    project = handle._session.project
    root = working_dir or (project and project.root) or _project_here(listening.folder)
    return _announcement(listening.port, str(root), listening.project)


def _project_here(folder: str) -> str:
    """Return the root of the project on this machine, as far as the working directory shows it.

    *folder* is the folder below the root in which the function runs. If the working directory is another
    one, it is taken for the root itself.
    """
    here = working_folder()
    parts = Path(folder).parts
    if parts and here.parts[-len(parts) :] == parts:
        here = here.parents[len(parts) - 1]
    return str(here)


def _announcement(port: int, local_root: str, remote_root: str) -> str:
    configuration = {
        "name": "Kinetic job",
        "type": "debugpy",
        "request": "attach",
        "connect": {"host": "127.0.0.1", "port": port},
        "pathMappings": [{"localRoot": local_root, "remoteRoot": remote_root}],
        "justMyCode": True,
    }
    return (
        f"debugpy waits on 127.0.0.1:{port}. In VS Code, add this to launch.json and start it:\n"
        + json.dumps(configuration, indent=2)
    )


def _session() -> subprocess.Popen[bytes]:
    """Return a process that ends when it is terminated, or when this process ends."""
    return subprocess.Popen(
        [sys.executable, "-S", "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE
    )


def _job_error(handle: JobHandle, message: str, hint: str) -> JobError:
    return JobError(message, hint=hint, job_id=handle.job_id)
