"""Supervisor start-up spec, passed on stdin.

Stdin is an unlinked file, because captured variables are secret.
"""

from __future__ import annotations

import marshal  # The same interpreter reads it. It is built in, so its import takes no time.

ATTEMPT = "\0attempt"
HOST = "\0host"
WORKSPACE = "\0workspace"
LIFELINE = "\0lifeline"
COORDINATOR = "\0coordinator"
KEY = "\0key"
"""Placeholders in commands and environments, filled in for each runner."""


class SupervisorSpec:
    """One job, described by the processes that run it. Not a dict: `repr` must not show what is secret."""

    home: str
    job_id: str
    store: str
    """The location of the store."""
    outcome_file: str | None
    """The file that exists once the job has an outcome; None if the store is a bucket."""
    hosts: int
    retries: int
    workers: list[int]
    """The numbers of the workers of a batch; empty for a single job."""
    at_once: int
    """How many of them run at the same time."""
    per_worker: int
    """How many inputs each of them has."""
    grace: float
    memory_limit: int | None
    command: list[str]
    """The command that starts a runner, with the placeholders above."""
    environment: dict[str, str]
    """The complete environment of a runner, with the placeholders above."""
    mark: str
    """A `NAME=value` in the environment of each process of the job, by which the processes are found."""
    signing_key: str
    """In hexadecimal; empty if records are not signed."""
    keep_awake: list[str]
    """Command that, with a process id appended, keeps the machine awake until that process ends."""
    bundle: str
    """The path of the runner, in a folder named by its digest."""
    report_seconds: float
    """For how many seconds to retry storing the end of the job."""

    def __init__(self, **values: object) -> None:
        vars(self).update(values)

    def encode(self) -> bytes:
        """Return the spec as bytes for `decode` in the same Python."""
        return marshal.dumps(vars(self))

    @classmethod
    def decode(cls, data: bytes) -> SupervisorSpec:
        """Rebuild a spec from `encode`."""
        return cls(**marshal.loads(data))  # noqa: S302 - written by the parent process

    def runner(
        self, *, attempt: int, host: int, workspace: str, lifeline: int, coordinator: str
    ) -> tuple[list[str], dict[str, str]]:
        """Return the command and the environment of one runner."""
        filled = {
            ATTEMPT: str(attempt),
            HOST: str(host),
            WORKSPACE: workspace,
            LIFELINE: str(lifeline),
            COORDINATOR: coordinator,
            KEY: self.signing_key,
        }
        command = [filled.get(argument, argument) for argument in self.command]
        environment = {name: filled.get(text, text) for name, text in self.environment.items()}
        return command, environment
