"""`App`: settings and output of a command line, and its access to the package `kinetic`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from kinetic_cli.output import Output

if TYPE_CHECKING:
    from kinetic.backends.backend import LogLine
    from kinetic.backends.gke.base_images import BaseImages
    from kinetic.errors import KineticError
    from kinetic.job_status import JobStatus
    from kinetic.jobs.handle import JobHandle
    from kinetic.settings.profiles import Profiles
    from kinetic.settings.settings import Settings

Where = Literal["local", "cluster"]


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
        self._resources = ExitStack()

    def close(self) -> None:
        """Release what the command used."""
        self._resources.close()

    def settings(self, **more: str) -> Settings:
        """Return the settings that this command line, and *more*, resolve to, with their sources."""
        from kinetic.settings.settings import Settings

        return Settings.from_environment(**self.target.given, **more)

    def attach(self, job_id: str) -> JobHandle:
        """Return the handle of a job."""
        from kinetic.jobs.discover import find_job

        self._print_warnings()
        return find_job(job_id, self.settings())

    def kept_log(self, job_id: str, tail: int | None) -> Iterator[LogLine] | None:
        """Return the stored log of a job that was cleaned up; None if there is none."""
        from kinetic.jobs.discover import kept_log

        return kept_log(job_id, self.settings(), tail=tail)

    def list_jobs(self, where: Where | None = None) -> list[JobHandle]:
        """Return all jobs; *where* overrides the backend of the settings."""
        from kinetic.backends.registry import CLUSTER, LOCAL
        from kinetic.jobs.discover import find_jobs

        self._print_warnings()
        if where is None:
            return find_jobs(self.settings())
        return find_jobs(self.settings(backend=LOCAL if where == "local" else CLUSTER))

    def statuses_of(self, jobs: Sequence[JobHandle]) -> list[JobStatus | KineticError]:
        """Return the status of each of *jobs*, or the error of finding it."""
        from kinetic.jobs.discover import statuses_of

        return statuses_of(jobs)

    def full_disk_of(self, jobs: Sequence[JobHandle]) -> str:
        """Return a message if a disk that some of *jobs* need is full, else an empty text."""
        from kinetic.jobs.discover import full_disk_of

        return full_disk_of(jobs, self.settings().home.value)

    def base_images(
        self,
        *,
        repo: str | None,
        tag: str | None,
        dockerfile: Path | None,
        builder: str | None,
        rebuild: bool,
        registry_user: str | None,
        registry_secret: str | None,
    ) -> BaseImages:
        """Return the base images of a repository; None stands for what the settings say."""
        from dataclasses import replace

        from kinetic.backends.gke.base_images import BaseImages
        from kinetic.settings.settings import environment

        given = {"base_image_repo": repo, "image_builder": builder}
        settings = self.settings(**{name: text for name, text in given.items() if text})
        settings = _rebuilding(settings, rebuild)
        found = BaseImages(
            settings,
            environment(),
            dockerfile=dockerfile,
            registry_user=registry_user,
            registry_secret=registry_secret,
        )
        return replace(found, tag=tag) if tag else found

    def prepare_image(
        self, path: Path, *, accelerator: str, builder: str | None, rebuild: bool
    ) -> str:
        """Make sure that the image for jobs of the project of *path* exists; return it by its digest."""
        from kinetic.submit.options import check_options
        from kinetic.submit.prepare import prepare

        more = {"image_builder": builder} if builder else {}
        settings = _rebuilding(self.settings(**more), rebuild)
        options = check_options(accelerator=accelerator, container_image="bundled")
        self._print_warnings()
        return prepare(path, options, settings, report=self.output.note).image

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

    def _print_warnings(self) -> None:
        """From now on, print warnings, for instance of a record that cannot be read."""
        from kinetic.user_warnings import logged_to, reported_to

        self.close()
        self._resources.enter_context(
            reported_to(lambda text: self.output.note(f"Warning: {text}"))
        )
        self._resources.enter_context(logged_to(self.output.note))


def _rebuilding(settings: Settings, rebuild: bool) -> Settings:
    from dataclasses import replace

    from kinetic.settings.settings import Setting

    return replace(settings, rebuild=Setting(True, "argument")) if rebuild else settings
