"""`ServicesClient`: a client of a backend that is not in the registry."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from kinetic.batches.batch import BatchOptions, submit_batch
from kinetic.batches.handle import BatchHandle
from kinetic.errors import JobNotFoundError
from kinetic.jobs.discover import jobs_in
from kinetic.jobs.handle import JobHandle, handle_of
from kinetic.jobs.records import find_record
from kinetic.jobs.services import Services
from kinetic.settings.settings import Settings, environment
from kinetic.submit.options import check_options
from kinetic.submit.request import JobRequest, request_of
from kinetic.submit.submit import submit
from kinetic.testing import RegisteredClient


class ServicesClient(RegisteredClient):
    """A client of *services*, for a backend that is not in the registry.

    `elsewhere` uses a handle that is read from the store in this process: no other process can reach such a
    backend. *options* are as for `RegisteredClient`.
    """

    def __init__(self, services: Services, **options: Any) -> None:
        super().__init__(**options)
        self._services = services

    @property
    def services(self) -> Services:
        """The jobs' store and backend."""
        return self._services

    def _start(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        options: Mapping[str, Any],
    ) -> JobHandle:
        request = self._request(function, options)
        return submit(request, function, args, kwargs, services=self._services)

    def _start_batch(
        self, function: Callable[..., Any], inputs: Iterable[Any], options: Mapping[str, Any]
    ) -> BatchHandle:
        checked = BatchOptions(**options)
        request = self._request(function, {})
        return submit_batch(request, function, (), inputs, checked, services=self._services)

    def _request(self, function: Callable[..., Any], options: Mapping[str, Any]) -> JobRequest:
        checked = check_options(**{**self._options, **options})
        settings = Settings.from_environment(**checked.overrides)
        cwd = Path(str(self.functions.__file__)).parent
        return request_of(checked, function, settings, environ=environment(), cwd=cwd)

    def attach(self, job_id: str) -> JobHandle:
        """Read the job's record."""
        found = find_record(self._services.store, job_id)
        if found is None:
            raise JobNotFoundError(f"There is no job {job_id}.")
        return handle_of(found.record, self._services, stored=found.data)

    def list(self) -> list[JobHandle]:
        """Read the records in the store."""
        found = jobs_in(self._services.store)
        for job in found:
            job._session.services = self._services
        return found

    def elsewhere(self, job_id: str) -> tuple[str, str, Any]:
        """Attach with another handle."""
        job = self.attach(job_id)
        return job.status().value, job.tail(1), job.result(cleanup=False)
