"""Supervisor start-up spec, passed on stdin.

Stdin is a file that has no name any more, as captured variables are secret.
"""

from __future__ import annotations

import marshal  # The same interpreter reads it, and it needs no import.

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ATTEMPT = "\0attempt"
HOST = "\0host"
WORKSPACE = "\0workspace"
LIFELINE = "\0lifeline"
COORDINATOR = "\0coordinator"
KEY = "\0key"
"""Placeholders in commands and environments, which each start of a runner fills in."""


class SupervisorSpec:
    """One job, in the terms of processes."""

    def __init__(
        self,
        *,
        home: str,
        job_id: str,
        store: str,
        outcome_file: str | None,
        hosts: int,
        retries: int,
        grace: float,
        memory_limit: int | None,
        command: Sequence[str],
        environment: Mapping[str, str],
        mark: str,
        lease_seconds: float | None = None,
        holder: str = "",
        signing_key: str = "",
        keep_awake: Sequence[str] = (),
        bundle: str = "",
        report_seconds: float = 3600.0,
    ) -> None:
        self.home = home
        self.job_id = job_id
        self.store = store
        """The location of the store."""
        self.outcome_file = outcome_file
        """A file that is there once the job has an outcome; None if the store has no such file."""
        self.hosts = hosts
        self.retries = retries
        self.grace = grace
        self.memory_limit = memory_limit
        self.command = list(command)
        """How to start the runner; with the placeholders above."""
        self.environment = dict(environment)
        """Of a runner, all of it; with the placeholders above."""
        self.mark = mark
        """The `NAME=value` in the environment of each process of the job, by which it is found."""
        self.lease_seconds = lease_seconds
        """How long the job's lease holds; None where only this machine sees the job."""
        self.holder = holder
        """Who holds the lease, for people to read."""
        self.signing_key = signing_key
        """In hexadecimal; empty where the outcome is not signed."""
        self.keep_awake = list(keep_awake)
        """Command that keeps the machine awake while the process whose id is added to it lives."""
        self.bundle = bundle
        """The runner's file, whose folder is named by its digest; empty: it is not verified."""
        self.report_seconds = report_seconds
        """For how many seconds storing the end of the job is retried."""

    def encode(self) -> bytes:
        """Return the spec as bytes for `decode` in the same Python."""
        return marshal.dumps(self.__dict__)

    @classmethod
    def decode(cls, data: bytes) -> SupervisorSpec:
        """Rebuild a spec from `encode`."""
        return cls(**marshal.loads(data))  # noqa: S302 - from our parent, through no file

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
