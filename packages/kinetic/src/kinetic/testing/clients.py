"""`RegisteredClient`: submits, attaches to and lists jobs of the backend under test."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, Final

import kinetic
from kinetic.batches.handle import BatchHandle
from kinetic.errors import KineticError
from kinetic.job_status import JobStatus
from kinetic.jobs.handle import JobHandle
from kinetic.jobs.services import Services, connect, jobs_location
from kinetic.settings.settings import Settings
from kinetic.submit.options import check_options
from kinetic.target import Target
from kinetic.testing import functions
from kinetic.waiting import Deadline
from kinetic_payload.layout import RESERVED_PREFIXES, JobObjects

_MODULE: Final = "users_functions"
_ELSEWHERE: Final = """
import json, sys, kinetic
job = kinetic.attach(sys.argv[1], **json.loads(sys.argv[2]))
print(json.dumps([job.status().value, job.tail(1), job.result(cleanup=False)]))
"""
PROJECT_FILES: Final[Mapping[str, str]] = MappingProxyType(
    {"pyproject.toml": "[project]\nname = 'users-project'\nversion = '1'\n"}
)
"""Files of a user's project, besides its functions."""


def eventually(holds: Callable[[], Any], seconds: float = 240, *, every: float = 0.01) -> Any:
    """Call *holds* until it returns something true, and return that."""
    deadline = Deadline(seconds)
    while not (found := holds()):
        if deadline.passed:
            raise AssertionError("It did not come true in time.")
        threading.Event().wait(every)
    return found


@contextmanager
def users_project(folder: Path, files: Mapping[str, str] = PROJECT_FILES) -> Iterator[ModuleType]:
    """Make a project with *files* in *folder*; within the block its module of functions can be imported."""
    source = Path(functions.__file__).read_text(encoding="utf-8")
    for name, text in {**files, f"{_MODULE}.py": source}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    sys.path.insert(0, str(folder))
    sys.modules.pop(_MODULE, None)
    importlib.invalidate_caches()
    try:
        yield importlib.import_module(_MODULE)
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop(_MODULE, None)


class RegisteredClient:
    """A user's process: it submits functions of a project, attaches to jobs and lists them.

    *options* are the arguments of `kinetic.run` for each job, including `backend`. Home and store come from
    the environment (`KINETIC_HOME`, `KINETIC_STORE`), so that other processes find the jobs. The store holds the jobs
    of one test alone: tests check that nothing is left there.
    """

    functions: ModuleType
    """A copy of `kinetic.testing.functions`, in the user's project."""

    def __init__(self, **options: Any) -> None:
        self._options = options
        self._submitted: list[JobHandle] = []
        self._batches: list[BatchHandle] = []

    def submit(
        self,
        function: Callable[..., Any],
        *args: Any,
        options: Mapping[str, Any] = MappingProxyType({}),
        **kwargs: Any,
    ) -> JobHandle:
        """Start *function* with the arguments of `kinetic.run` that are in *options*."""
        handle = self._start(function, args, kwargs, options)
        self._submitted.append(handle)
        return handle

    def submit_batch(
        self, function: Callable[..., Any], inputs: Iterable[Any], **options: Any
    ) -> BatchHandle:
        """Start *function* for each of *inputs* with the arguments of `run_async_map` that are in *options*."""
        handle = self._start_batch(function, inputs, options)
        self._batches.append(handle)
        return handle

    @cached_property
    def services(self) -> Services:
        """The jobs' store and backend."""
        backend = str(self._options["backend"])
        settings = Settings.from_environment(**check_options(**self._options).overrides)
        location = jobs_location(settings, backend)
        return connect(backend, Target.in_settings(settings), location, settings)

    def _start(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        options: Mapping[str, Any],
    ) -> JobHandle:
        return kinetic.run(**{**self._options, **options})(function).run_async(*args, **kwargs)

    def _start_batch(
        self, function: Callable[..., Any], inputs: Iterable[Any], options: Mapping[str, Any]
    ) -> BatchHandle:
        return kinetic.run(**self._options)(function).run_async_map(inputs, **options)

    def attach(self, job_id: str) -> JobHandle:
        """Call `kinetic.attach`."""
        return kinetic.attach(job_id, **self._selected("project", "cluster"))

    def list(self) -> list[JobHandle]:
        """Call `kinetic.list_jobs`."""
        return kinetic.list_jobs(**self._selected("project", "zone", "cluster", "namespace"))

    def elsewhere(self, job_id: str) -> tuple[str, str, Any]:
        """Attach in another process."""
        options = json.dumps(self._selected("project", "cluster"))
        completed = subprocess.run(
            [sys.executable, "-c", _ELSEWHERE, job_id, options],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert completed.returncode == 0, completed.stderr
        status, line, value = json.loads(completed.stdout.splitlines()[-1])
        return status, line, value

    def _selected(self, *names: str) -> dict[str, Any]:
        return {name: self._options[name] for name in names if name in self._options}

    def put(self, handle: JobHandle, name: str) -> None:
        """Write an output of the job, for which its function may wait."""
        self.services.store.write(JobObjects(handle.job_id).outputs + name, b"")

    def outputs(self, handle: JobHandle, prefix: str = "") -> set[str]:
        """Return the names of the job's outputs that begin with *prefix*."""
        outputs = JobObjects(handle.job_id).outputs
        listed = self.services.store.list(outputs + prefix)
        # Temporary files of atomic writes do not count.
        names = (info.name.removeprefix(outputs) for info in listed)
        return {name for name in names if not name.rpartition("/")[2].startswith(".")}

    def objects(self) -> set[str]:
        """Return the names of all objects that a clean-up of their jobs removes."""
        listed = (info.name for info in self.services.store.list(""))
        return {name for name in listed if not name.startswith(RESERVED_PREFIXES)}

    def resources(self) -> set[str]:
        """Return the ids of the jobs that the backend knows."""
        return {job.job_id for job in self.services.backend.list()}

    def close(self) -> None:
        """Clean up every submitted job and batch that still exists."""
        for batch in self._batches:
            with suppress(KineticError):
                batch.cleanup()
        for handle in self._submitted:
            with suppress(KineticError):
                if handle.status() is not JobStatus.NOT_FOUND:
                    handle.cleanup()
