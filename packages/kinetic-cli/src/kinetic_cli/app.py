"""`App`: what commands share, and the one place where they meet the facade."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from kinetic_cli.options import Target
from kinetic_cli.output import Output

if TYPE_CHECKING:
    from kinetic.backends.backend import LogLine
    from kinetic.errors import KineticError
    from kinetic.job_status import JobStatus
    from kinetic.jobs.handle import JobHandle
    from kinetic.settings.profiles import Profiles
    from kinetic.settings.settings import Settings

Where = Literal["local", "cluster"]


class App:
    """The facade as one command line sees it. The facade is imported when a command first asks."""

    def __init__(
        self, output: Output | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self.output = output or Output()
        self.clock = clock
        self.target = Target()
        self.debug = False

    def settings(self) -> Settings:
        """Return the settings that this command line resolves to, with their sources."""
        from kinetic.settings.settings import Settings

        return Settings.from_environment(**self.target.given)

    def attach(self, job_id: str) -> JobHandle:
        """Return the handle of a job."""
        from kinetic.jobs.discover import attach

        self._choose_profile()
        self._hear_warnings()
        return attach(
            job_id, project=self.target.get("project"), cluster=self.target.get("cluster")
        )

    def kept_log(self, job_id: str, tail: int | None) -> Iterator[LogLine] | None:
        """Return what is kept of the log of a job that was cleaned up; None where nothing is."""
        from kinetic.jobs.discover import kept_log

        return kept_log(job_id, self.settings(), tail=tail)

    def list_jobs(self, where: Where | None = None) -> list[JobHandle]:
        """Return the jobs there are; *where* overrides what the settings say."""
        from kinetic.jobs.discover import list_jobs

        self._choose_profile()
        self._hear_warnings()
        if where is not None:
            from kinetic.backends.registry import CLUSTER, LOCAL

            _set("KINETIC_BACKEND", LOCAL if where == "local" else CLUSTER)
        return list_jobs(
            project=self.target.get("project"),
            zone=self.target.get("zone"),
            cluster=self.target.get("cluster"),
            namespace=self.target.get("namespace"),
        )

    def statuses_of(self, jobs: Sequence[JobHandle]) -> list[JobStatus | KineticError]:
        """Return the status of each of *jobs*, or why it is not known."""
        from kinetic.jobs.discover import statuses_of

        return statuses_of(jobs)

    def full_disk_of(self, jobs: Sequence[JobHandle]) -> str:
        """Return what to say of a full disk that some of *jobs* need; nothing if none is."""
        from kinetic.jobs.discover import full_disk_of

        return full_disk_of(jobs)

    def profiles_path(self) -> Path:
        """Return where the profiles file is, or will be."""
        from kinetic.settings.settings import environment, resolve

        # Which profile is chosen does not matter here, and may be the very thing to be mended.
        outside = {k: v for k, v in environment().items() if k != "KINETIC_PROFILE"}
        return Path(resolve({}, environ=outside).profiles_file.value)

    def profiles(self) -> Profiles:
        """Read the profiles file."""
        from kinetic.settings.profiles import read_profiles

        return read_profiles(self.profiles_path())

    def _choose_profile(self) -> None:
        if profile := self.target.get("profile"):
            _set("KINETIC_PROFILE", profile)

    def _hear_warnings(self) -> None:
        """Say what the facade warns of, such as a job whose record cannot be read."""
        import logging
        import warnings

        say = self.output.note

        def show(message: Warning | str, *_: object) -> None:
            say(f"Warning: {message}")

        warnings.showwarning = show  # type: ignore[assignment]

        class Notes(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                say(f"{record.levelname.capitalize()}: {record.getMessage()}")

        logger = logging.getLogger("kinetic")
        if not any(type(handler).__name__ == "Notes" for handler in logger.handlers):
            logger.addHandler(Notes(logging.WARNING))


def _set(name: str, value: str) -> None:
    # This process is the command's own. Whatever reads the settings later, also deep inside a handle,
    # must see what the command line said.
    os.environ[name] = value  # noqa: TID251
