"""The errors that Kinetic raises; one tree under `KineticError`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kinetic_payload.errors import BucketNotFoundError as BucketNotFoundError
from kinetic_payload.errors import CredentialsError as CredentialsError
from kinetic_payload.errors import DataError as DataError
from kinetic_payload.errors import DataNotFoundError as DataNotFoundError
from kinetic_payload.errors import FutureRecordError as FutureRecordError
from kinetic_payload.errors import IntegrityError as IntegrityError
from kinetic_payload.errors import InvalidRequestError as InvalidRequestError
from kinetic_payload.errors import KineticError as KineticError
from kinetic_payload.errors import LoginRequiredError as LoginRequiredError
from kinetic_payload.errors import ObjectNotFoundError as ObjectNotFoundError
from kinetic_payload.errors import PackagingError as PackagingError
from kinetic_payload.errors import PayloadError as PayloadError
from kinetic_payload.errors import PreconditionFailedError as PreconditionFailedError
from kinetic_payload.errors import RecordError as RecordError
from kinetic_payload.errors import SignatureError as SignatureError
from kinetic_payload.errors import StoreError as StoreError
from kinetic_payload.errors import StorePermissionError as StorePermissionError
from kinetic_payload.errors import StoreUnavailableError as StoreUnavailableError
from kinetic_payload.errors import UnavailableError as UnavailableError
from kinetic_payload.errors import UnsafeArchiveError as UnsafeArchiveError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kinetic.jobs.handle import JobHandle


class ConfigurationError(InvalidRequestError):
    """A setting, an environment variable or the profiles file is wrong."""


class DataNotLocalError(DataError, ValueError):
    """The contents of a `Data` with a URI are not on this machine."""


class ProvisioningError(KineticError, RuntimeError):
    """Something of a cluster could not be made, changed or removed; its notes say how far it came."""


class CloudUnavailableError(ProvisioningError, UnavailableError):
    """A service of Google Cloud did not respond."""


class CloudPermissionError(ProvisioningError, PermissionError):
    """You lack permissions in the project; the hint has the lines that grant them."""

    permissions: tuple[str, ...] = ()
    """Such as `container.clusters.create`."""


class ProvisioningBusyError(ProvisioningError):
    """Another process makes or removes this cluster at this moment."""


class SubmitError(KineticError, RuntimeError):
    """The job could not be started; everything this submit created was removed again."""


class JobError(KineticError, RuntimeError):
    """An error about the job `job_id`."""

    job_id: str = ""

    def __init__(self, message: str, *, hint: str | None = None, job_id: str = "") -> None:
        super().__init__(message, hint=hint)
        self.job_id = job_id


class JobFailedError(JobError):
    """The job ended without a value and without an exception of the user's function."""


class TimeLimitError(JobFailedError):
    """The function ran longer than its `timeout`."""


class OutOfMemoryError(JobFailedError):
    """A process of the job was killed because the container or the node had no memory left."""


class JobKilledError(JobFailedError):
    """The function's process was ended by a signal, for another reason than memory."""

    signal: int | None = None
    """Its number, such as 11 for SIGSEGV."""


class NoValueError(JobFailedError):
    """The function ended without a value: it left its process, or its value cannot be pickled."""

    exit_code: int | None = None
    """The code with which it left its process; None if it did not, or an earlier Kinetic ran it."""


class PreparationError(JobFailedError):
    """Kinetic could not prepare the call on the job's machine."""

    phase: str = ""
    """What failed: `fetch`, `verify`, `extract`, `environment`, `unpickle` or `data`."""


class JobCancelledError(JobFailedError):
    """The job was cancelled."""


class NotLaunchedError(JobFailedError):
    """An input of a batch was never started: the batch was cancelled, or stopped after a failure."""


class BatchError(KineticError, RuntimeError):
    """Inputs of the batch `group_id` failed, were never started, or could not be submitted."""

    def __init__(
        self,
        group_id: str,
        failures: list[JobHandle],
        partial_results: list[Any],
        *,
        total: int | None = None,
        exceptions: Mapping[int, BaseException] | None = None,
    ) -> None:
        """Take the handles of inputs that failed, the values of the others, and the exceptions by index."""
        self.group_id = group_id
        self.failures = failures
        """The handles of inputs that failed, or were never started."""
        self.partial_results = partial_results
        """The values, in the order of the inputs; None in place of one that failed."""
        self.exceptions = dict(exceptions or {})
        """By index, the exception of each input without a value, also of those that were not submitted."""
        count = len(self.exceptions) or len(failures)
        of = "" if total is None else f" of {total}"
        super().__init__(
            f"{count}{of} inputs of {group_id} have no value.",
            hint="Each exception: results(return_exceptions=True), or .exceptions of this error.",
        )


class RemoteError(JobFailedError):
    """Raised in place of the user's exception if that cannot be rebuilt here.

    Its class may be missing here, or it could not be pickled. `remote_type`, `remote_message` and
    `remote_traceback` describe it.
    """

    remote_type: str = ""
    remote_message: str = ""
    remote_traceback: str = ""


class JobNotFoundError(JobError, LookupError):
    """There is no such job; the message names every place that was searched."""


class ResultTimeoutError(JobError, TimeoutError):
    """The wait timed out; the job keeps running and its handle stays valid."""


class ResultUnreadableError(JobError):
    """The job succeeded and its value is kept, but cannot be unpickled in this process."""


class NotInsideJobError(KineticError, RuntimeError):
    """A function for clients was called inside a job."""
