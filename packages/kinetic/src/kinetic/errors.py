"""The errors that Kinetic raises; one tree under `KineticError`."""

from __future__ import annotations

from kinetic_payload.errors import (
    BucketNotFoundError,
    CredentialsError,
    DataError,
    DataNotFoundError,
    FutureRecordError,
    IntegrityError,
    InvalidRequestError,
    KineticError,
    LoginRequiredError,
    ObjectNotFoundError,
    PackagingError,
    PayloadError,
    PreconditionFailedError,
    RecordError,
    SignatureError,
    StoreError,
    StorePermissionError,
    StoreUnavailableError,
    UnavailableError,
    UnsafeArchiveError,
)

__all__ = [
    "BucketNotFoundError",
    "ConfigurationError",
    "CredentialsError",
    "DataError",
    "DataNotFoundError",
    "DataNotLocalError",
    "FutureRecordError",
    "IntegrityError",
    "InvalidRequestError",
    "JobCancelledError",
    "JobError",
    "JobFailedError",
    "JobNotFoundError",
    "KineticError",
    "LoginRequiredError",
    "NotInsideJobError",
    "ObjectNotFoundError",
    "PackagingError",
    "PayloadError",
    "PreconditionFailedError",
    "RecordError",
    "RemoteError",
    "ResultTimeoutError",
    "ResultUnreadableError",
    "SignatureError",
    "StoreError",
    "StorePermissionError",
    "StoreUnavailableError",
    "SubmitError",
    "UnavailableError",
    "UnsafeArchiveError",
]


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
