"""`KineticError`, the base class of all errors of Kinetic, and the errors of this package.

Pickled exceptions in stores name these classes: do not rename them or their module.
"""

from __future__ import annotations

import errno
from typing import Any

from kinetic_payload.printable import printable


class KineticError(Exception):
    """An error of Kinetic. Its message says what failed, on which thing, and what was seen.

    *hint* gives the next step. Both may repeat text from outside (from a record or a service), so control
    characters are escaped.
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        message, hint = printable(message), None if hint is None else printable(hint)
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions are rebuilt from `args` alone, which would lose the hint.
        return (self._rebuild, (type(self), self.args), self.__dict__)

    @staticmethod
    def _rebuild(cls: type[KineticError], args: tuple[Any, ...]) -> KineticError:
        # `cls.__new__` would be that of the first base, which cannot make an error that is an `OSError` too.
        new = OSError.__new__ if issubclass(cls, OSError) else cls.__new__
        error = new(cls, *args)
        error.args = args
        return error


class InvalidRequestError(KineticError, ValueError):
    """A request is invalid; nothing was packaged, uploaded or billed."""


class PackagingError(KineticError):
    """The project could not be turned into a snapshot."""


class TreeChangedError(PackagingError):
    """A file changed between its snapshot and the writing of the archive; a new snapshot may succeed."""


class PayloadError(KineticError, TypeError):
    """A call cannot be pickled; the message names the part that cannot."""


class DataError(KineticError):
    """A `Data` cannot be hashed, uploaded or made available in the job."""


class DataNotFoundError(DataError, FileNotFoundError):
    """A local `Data` does not exist; `filename` is its path."""

    def __init__(self, message: str, *, filename: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.errno = errno.ENOENT
        self.strerror = "No such file or directory"
        self.filename = filename

    def __reduce__(self) -> tuple[Any, ...]:
        # The attributes of `OSError` are not in the dictionary.
        rebuild, args, state = super().__reduce__()
        kept = {name: getattr(self, name) for name in ("errno", "strerror", "filename")}
        return (rebuild, args, {**state, **kept})


class IntegrityError(KineticError):
    """Bytes are not the expected ones: a digest does not match."""


class UnsafeArchiveError(IntegrityError):
    """An archive has an entry that would write outside the folder it is extracted to."""


class SignatureError(IntegrityError):
    """A record in a bucket is not signed with the key of its job."""


class RecordError(KineticError, ValueError):
    """A persisted record cannot be understood."""


class FutureRecordError(RecordError):
    """A record was written by a newer version of Kinetic than this one."""


class UnavailableError(KineticError):
    """A service could not be reached within the time limit; its jobs continue."""


class LoginRequiredError(KineticError):
    """A service does not accept the credentials until a person logs in again; its jobs continue."""


class StoreError(KineticError):
    """An operation on a store failed."""


class ObjectNotFoundError(StoreError, FileNotFoundError):
    """There is no object of that name."""


class PreconditionFailedError(StoreError):
    """The object has another generation than the caller expected: another process was first."""


class StorePermissionError(StoreError, PermissionError):
    """The store exists, and access to it is denied."""


class CredentialsError(StoreError):
    """There are no credentials that the bucket service accepts."""


class BucketNotFoundError(StoreError):
    """There is no bucket of that name."""


class StoreUnavailableError(StoreError, UnavailableError):
    """A store did not respond, or only with transient errors, within the time limit."""

    sent = True
    """Whether a request may have reached the store."""
