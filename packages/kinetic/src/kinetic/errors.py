"""The errors that Kinetic raises; one tree under `KineticError`."""

from __future__ import annotations

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


class ConfigurationError(InvalidRequestError):
    """A setting, an environment variable or the profiles file is wrong."""


class DataNotLocalError(DataError, ValueError):
    """The contents of a `Data` with a URI are not on this machine."""


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


class JobCancelledError(JobFailedError):
    """The job was cancelled."""


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
