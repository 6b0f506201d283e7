"""Paths of the local backend below `KINETIC_HOME`.

The supervisor imports this before it starts a runner, so paths are plain text: importing `pathlib` and
`dataclasses` would take a tenth of a job's start.
"""

from __future__ import annotations


class Home:
    """`KINETIC_HOME`, readable by its user only."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.jobs = f"{path}/jobs"
        self.bundles = f"{path}/bundles"
        self.environments = f"{path}/environments"
        self.ports = f"{path}/ports"
        self.queue = f"{path}/queue"
        self.queue_lock = f"{path}/.queue.lock"
        self.starter_lock = f"{path}/.starter.lock"
        """Locked by the process that starts jobs which wait."""

    def job(self, job_id: str) -> JobFolder:
        """Return the private folder of a job."""
        return JobFolder(f"{self.jobs}/{job_id}")

    def bundle(self, digest: str) -> str:
        """Return the folder of a bundle, which holds the runner."""
        return f"{self.bundles}/{digest}"

    def environment(self, digest: str) -> str:
        """Return the folder of an isolated environment."""
        return f"{self.environments}/{digest}"


class JobFolder:
    """The folder of one job, and the files of its supervisor and its clients."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.alive = f"{path}/alive"
        """A FIFO whose write end the supervisor holds."""
        self.control = f"{path}/control"
        """A FIFO that the supervisor reads."""
        self.lock = f"{path}/lock"
        """Locked by the supervisor while it lives."""
        self.state = f"{path}/state.json"
        self.waiting = f"{path}/waiting"
        """While the job waits for a place: how to start its supervisor."""
        self.uses = f"{path}/uses.json"
        """Names the shared files that the job needs. They are not collected while this file exists."""
        self.supervisor_log = f"{path}/supervisor.log"
        self.pending_uploads = f"{path}/unsaved"
        """Results that could not be stored yet."""

    def attempt(self, number: int) -> str:
        """Return the folder of one attempt."""
        return f"{self.path}/attempt-{number}"

    def runners(self, attempt: int) -> str:
        """Return a FIFO whose write end only the runners of the attempt hold."""
        return f"{self.path}/attempt-{attempt}/runners"

    def log(self, attempt: int, host: int) -> str:
        """Return the live log of one host of one attempt."""
        return f"{self.path}/attempt-{attempt}/host-{host}.log"

    def workspace(self, host: int) -> str:
        """Return the workspace of one host, shared by all its attempts."""
        return f"{self.path}/host-{host}"
