"""Run a Python function on an accelerator.

import kinetic

@kinetic.run(accelerator="tpu-v5litepod-4")
def train(lr: float) -> float: ...

loss = train(0.001)           # blocks, shows the log, returns the value
job = train.run_async(0.001)  # a JobHandle, at once
"""

from __future__ import annotations

import logging as _logging
from typing import TYPE_CHECKING
from typing import Any as _Any

if TYPE_CHECKING:
    from kinetic.batches.handle import BatchHandle as BatchHandle
    from kinetic.batches.handle import attach_batch as attach_batch
    from kinetic.data import Data as Data
    from kinetic.decorator import run as run
    from kinetic.errors import BatchError as BatchError
    from kinetic.errors import ConfigurationError as ConfigurationError
    from kinetic.errors import DataError as DataError
    from kinetic.errors import IntegrityError as IntegrityError
    from kinetic.errors import InvalidRequestError as InvalidRequestError
    from kinetic.errors import JobCancelledError as JobCancelledError
    from kinetic.errors import JobError as JobError
    from kinetic.errors import JobFailedError as JobFailedError
    from kinetic.errors import JobNotFoundError as JobNotFoundError
    from kinetic.errors import KineticError as KineticError
    from kinetic.errors import NotInsideJobError as NotInsideJobError
    from kinetic.errors import NotLaunchedError as NotLaunchedError
    from kinetic.errors import PackagingError as PackagingError
    from kinetic.errors import PayloadError as PayloadError
    from kinetic.errors import RemoteError as RemoteError
    from kinetic.errors import ResultTimeoutError as ResultTimeoutError
    from kinetic.errors import ResultUnreadableError as ResultUnreadableError
    from kinetic.errors import StoreError as StoreError
    from kinetic.errors import SubmitError as SubmitError
    from kinetic.job_status import JobStatus as JobStatus
    from kinetic.jobs.discover import attach as attach
    from kinetic.jobs.discover import list_jobs as list_jobs
    from kinetic.jobs.handle import JobHandle as JobHandle

__version__ = "0.1.0"

# Libraries do not print log messages unless the user configures logging.
_logging.getLogger("kinetic").addHandler(_logging.NullHandler())

_MODULE_OF = {
    "BatchHandle": "batches.handle",
    "Data": "data",
    "JobHandle": "jobs.handle",
    "JobStatus": "job_status",
    "attach": "jobs.discover",
    "attach_batch": "batches.handle",
    "list_jobs": "jobs.discover",
    "run": "decorator",
    **dict.fromkeys(
        (
            "BatchError",
            "ConfigurationError",
            "DataError",
            "IntegrityError",
            "InvalidRequestError",
            "JobCancelledError",
            "JobError",
            "JobFailedError",
            "JobNotFoundError",
            "KineticError",
            "NotInsideJobError",
            "NotLaunchedError",
            "PackagingError",
            "PayloadError",
            "RemoteError",
            "ResultTimeoutError",
            "ResultUnreadableError",
            "StoreError",
            "SubmitError",
        ),
        "errors",
    ),
}
"""The public names and their modules, which are imported on first use."""

__all__ = [*sorted(_MODULE_OF), "__version__"]


if not TYPE_CHECKING:  # it would make every name look public

    def __getattr__(name: str) -> _Any:
        module = _MODULE_OF.get(name)
        if module is None:
            raise AttributeError(f"module 'kinetic' has no attribute {name!r}")
        from importlib import import_module

        try:
            value = getattr(import_module(f"kinetic.{module}"), name)
        except ModuleNotFoundError as error:
            value = _stand_in(name, error)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF})


def _stand_in(name: str, error: ModuleNotFoundError) -> _Any:
    """Return a stand-in for *name* inside a job without the full `kinetic`; using it raises.

    A module that imports the name and does not use it must not fail in a job.
    """
    from kinetic_payload.data.references import inside_job

    if not inside_job():
        raise error

    def refuse(*_args: object, **_kwargs: object) -> _Any:
        from kinetic.errors import NotInsideJobError

        raise NotInsideJobError(
            f"kinetic.{name} is for processes that submit jobs. This process is inside a job, and lacks "
            f"the module {error.name!r}.",
            hint="Use it in the process that submits. Inside a job, decorated functions simply run.",
        )

    if name[0].isupper():
        return type(name, (), {"__new__": refuse, "__module__": "kinetic"})
    refuse.__name__ = refuse.__qualname__ = name
    return refuse
