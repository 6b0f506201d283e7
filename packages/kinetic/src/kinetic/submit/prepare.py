"""Prepare where the jobs of a project will run, before there is a job: build their image."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kinetic.backends.backend import Environment
from kinetic.errors import InvalidRequestError
from kinetic.jobs.services import connect, jobs_location
from kinetic.settings.home import make_home
from kinetic.settings.settings import environment, user_home
from kinetic.submit.package import Packaging, own_files, snapshot_of
from kinetic.submit.request import request_of
from kinetic_payload.progress import silent
from kinetic_payload.project.roots import Entry, plan_project

if TYPE_CHECKING:
    from kinetic.settings.settings import Settings
    from kinetic.submit.options import RunOptions
    from kinetic.submit.warnings import Notices


def prepare(path: Path, options: RunOptions, settings: Settings, notices: Notices) -> Environment:
    """Return what the jobs of the project of *path*, a script or a folder, will run in; make it if it is missing.

    Nothing is submitted.

    Raises:
        InvalidRequestError: There is no such path, or a setting is invalid.
        KineticError: A job would be refused in the same way.
    """
    path = path.absolute()
    if not path.exists():
        raise InvalidRequestError(f"There is no {path}.", hint="Name a script or a folder.")
    file, folder = (path / "main.py", path) if path.is_dir() else (path, path.parent)

    def job() -> None:
        """Stand for any function of the project."""

    request = request_of(options, job, settings, environ=environment(), cwd=folder)
    services = connect(
        request.backend, request.target, jobs_location(settings, request.backend), settings
    )
    for warning in services.backend.check(request):
        notices.warn(warning)
    home = Path(settings.home.value)
    make_home(str(home))
    plan = plan_project(
        Entry(file=file, module=None, kind="script", main=None if path.is_dir() else file),
        sys_path=[],
        cwd=folder,
        home=user_home(),
        override=settings.package_root.value,
    )

    packaging = Packaging(plan, notices)
    packaging.reads_buckets.set_result(False)
    own = own_files(home, services.store.location)
    packaging.snapshot.set_result(snapshot_of(plan, request, exclude=own, track=silent))
    return services.backend.environment(request, packaging)
