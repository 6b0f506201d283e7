"""The errors a user of Kinetic can meet; one tree under `KineticError`."""

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
    "FutureRecordError",
    "IntegrityError",
    "InvalidRequestError",
    "JobCancelledError",
    "JobError",
    "JobFailedError",
    "JobNotFoundError",
    "KineticError",
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


class SubmitError(KineticError, RuntimeError):
    """The job could not be started; everything this submit created was removed again."""


class JobError(KineticError, RuntimeError):
    """Something about one job; `job_id` says which."""

    job_id: str = ""


class JobFailedError(JobError):
    """The job ended without a value, and not by an exception of the user's own."""


class JobCancelledError(JobFailedError):
    """Somebody cancelled the job."""


class RemoteError(JobFailedError):
    """The user's exception, where its class is missing here or would not travel.

    `remote_type`, `remote_message` and `remote_traceback` say what it was.
    """

    remote_type: str = ""
    remote_message: str = ""
    remote_traceback: str = ""


class JobNotFoundError(JobError, LookupError):
    """No such job: the message names every place that was looked at."""


class ResultTimeoutError(JobError, TimeoutError):
    """The wait was given up; the job runs on and its handle stays valid."""


class ResultUnreadableError(JobError):
    """The job succeeded and its value is kept, but cannot be unpickled in this process."""


class NotInsideJobError(KineticError, RuntimeError):
    """Something for the client was used inside a job."""
