"""Supervisor start-up spec, passed on stdin.

Stdin is an unlinked file, because captured variables are secret.
"""

from __future__ import annotations

import marshal  # The same interpreter reads it. It is built in, so its import takes no time.

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ATTEMPT = "\0attempt"
HOST = "\0host"
WORKSPACE = "\0workspace"
LIFELINE = "\0lifeline"
COORDINATOR = "\0coordinator"
KEY = "\0key"
"""Placeholders in commands and environments, filled in for each runner."""


class SupervisorSpec:
    """One job, described by the processes that run it."""

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
        """The file that exists once the job has an outcome; None if the store is a bucket."""
        self.hosts = hosts
        self.retries = retries
        self.grace = grace
        self.memory_limit = memory_limit
        self.command = list(command)
        """The command that starts a runner, with the placeholders above."""
        self.environment = dict(environment)
        """The complete environment of a runner, with the placeholders above."""
        self.mark = mark
        """A `NAME=value` in the environment of each process of the job, by which the processes are found."""
        self.signing_key = signing_key
        """In hexadecimal; empty if records are not signed."""
        self.keep_awake = list(keep_awake)
        """Command that, with a process id appended, keeps the machine awake until that process ends."""
        self.bundle = bundle
        """The path of the runner, in a folder named by its digest; if empty, the runner is not verified."""
        self.report_seconds = report_seconds
        """For how many seconds to retry storing the end of the job."""

    def encode(self) -> bytes:
        """Return the spec as bytes for `decode` in the same Python."""
        return marshal.dumps(self.__dict__)

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
