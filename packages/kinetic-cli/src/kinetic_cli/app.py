"""`App`: settings and output of a command line, and its access to the package `kinetic`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kinetic_cli.output import Output

if TYPE_CHECKING:
    from kinetic.batches.handle import BatchHandle
    from kinetic.jobs.handle import JobHandle
    from kinetic.jobs.report import Report
    from kinetic.names import Selection
    from kinetic.settings.profiles import Profiles
    from kinetic.settings.settings import Settings


@dataclass
class TargetOptions:
    """The settings that a command line gives as options: profile, project, cluster and so on."""

    given: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, ctx: click.Context) -> TargetOptions:
        """Return the options of this command line; commands at every level add to them."""
        target = ctx.meta.setdefault(__name__, cls())
        assert isinstance(target, cls)
        return target

    def get(self, name: str) -> str | None:
        """Return the value of `--name`; None if it is not given, or empty."""
        return self.given.get(name)


class App:
    """The package `kinetic` with the settings of a command line; imported when first needed."""

    def __init__(
        self, output: Output | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self.output = output or Output()
        self.clock = clock
        self.target = TargetOptions()
        self.debug = False
        self.ended: dict[str, JobHandle] = {}
        """Jobs that have ended, by id, which `list_all` does not read again."""
        self._resources = ExitStack()

    def close(self) -> None:
        """Release what the command used."""
        self._resources.close()

    def settings(self, config: Mapping[str, Any] = {}, /, **more: str | None) -> Settings:
        """Return the settings that this command line, and *more*, resolve to, with their sources.

        *config* are the keys of a `kinetic.toml`, of which some are settings.
        """
        from kinetic.settings.project_file import SETTINGS
        from kinetic.settings.settings import environment, resolve

        given = {**self.target.given, **{name: text for name, text in more.items() if text}}
        profile = given.pop("profile", None)
        file = {key: config[key] for key in SETTINGS if key in config}
        return resolve(given, profile=profile, environ=environment(), file=file)

    def attach(self, job_id: str) -> JobHandle:
        """Return the handle of a job, whose id may be shortened."""
        from kinetic.jobs.discover import complete_id, find_job

        self.print_warnings()
        settings = self.settings()
        job = find_job(complete_id(job_id, settings), settings)
        job._quiet = self.output.quiet  # noqa: SLF001 - in Python, waits show their progress
        return job

    def report(self, job_id: str) -> Report:
        """Return the report of a job, whose id may be shortened."""
        from kinetic.jobs.discover import complete_id, find_report

        self.print_warnings()
        settings = self.settings()
        return find_report(complete_id(job_id, settings), settings)

    def attach_batch(self, group_id: str) -> BatchHandle:
        """Return the handle of a batch, whose id may be shortened."""
        from kinetic.batches.handle import batch_in
        from kinetic.jobs.discover import complete_id

        self.print_warnings()
        settings = self.settings()
        batch = batch_in(complete_id(group_id, settings, batch=True), settings)
        batch._quiet = self.output.quiet  # noqa: SLF001 - as above
        return batch

    def list_batches(self) -> list[BatchHandle]:
        """Return all batches."""
        from kinetic.batches.discover import find_batches

        self.print_warnings()
        return find_batches(self.settings())

    def list_all(
        self, settings: Settings, selection: Selection | None = None
    ) -> tuple[list[JobHandle], list[BatchHandle]]:
        """Return the jobs of *selection* and all batches."""
        from kinetic.batches.discover import find_jobs_and_batches
        from kinetic.jobs.discover import ALL_JOBS

        self.print_warnings()
        return find_jobs_and_batches(settings, selection or ALL_JOBS, self.ended)

    def profiles_path(self) -> Path:
        """Return the path of the profiles file, which may not exist."""
        from kinetic.settings.settings import environment, resolve

        # Ignore the chosen profile: it does not change this path, and may be invalid.
        variables = {k: v for k, v in environment().items() if k != "KINETIC_PROFILE"}
        return Path(resolve({}, environ=variables).profiles_file.value)

    def profiles(self) -> Profiles:
        """Read the profiles file."""
        from kinetic.settings.profiles import read_profiles

        return read_profiles(self.profiles_path())

    def print_warnings(self) -> None:
        """From now on, print warnings, for instance of a record that cannot be read."""
        from kinetic.user_warnings import logged_to, reported_to

        self.close()
        self._resources.enter_context(
            reported_to(lambda text: self.output.warn(f"Warning: {text}"))
        )
        self._resources.enter_context(logged_to(self.output.warn))
