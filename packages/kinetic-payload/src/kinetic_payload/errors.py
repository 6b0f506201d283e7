"""The root of every error of ours, and the errors of this package.

Pickled exceptions in stores name these classes: their names and their module stay.
"""

from __future__ import annotations

import errno
from typing import Any

from kinetic_payload.printable import printable


class KineticError(Exception):
    """What failed, on which thing, what was seen; and, as *hint*, what to do next.

    Both may repeat text of others (a record's, a service's), so control characters are escaped.
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        message, hint = printable(message), None if hint is None else printable(hint)
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions are rebuilt from `args` alone, which would lose the hint on its way home.
        return (self._rebuild, (type(self), self.args), self.__dict__)

    @staticmethod
    def _rebuild(cls: type[KineticError], args: tuple[Any, ...]) -> KineticError:
        error = cls.__new__(cls, *args)
        error.args = args
        return error


class InvalidRequestError(KineticError, ValueError):
    """Something the user asked for cannot be right; nothing was packaged, uploaded or billed."""


class PackagingError(KineticError):
    """The project could not be turned into a snapshot."""


class TreeChangedError(PackagingError):
    """A file changed between its snapshot and the writing of the archive; another snapshot may do."""


class PayloadError(KineticError, TypeError):
    """A call cannot be pickled; the message names the piece that would not."""


class DataError(KineticError):
    """A `Data` cannot be hashed, shipped or brought to where it is used."""


class DataNotFoundError(DataError, FileNotFoundError):
    """A local `Data` is not there; `filename` is its path."""

    def __init__(self, message: str, *, filename: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.errno = errno.ENOENT
        self.strerror = "No such file or directory"
        self.filename = filename

    def __reduce__(self) -> tuple[Any, ...]:
        # What `OSError` keeps is not in the dictionary.
        rebuild, args, state = super().__reduce__()
        kept = {name: getattr(self, name) for name in ("errno", "strerror", "filename")}
        return (rebuild, args, {**state, **kept})


class IntegrityError(KineticError):
    """Bytes are not the bytes that were promised: a digest does not match."""


class UnsafeArchiveError(IntegrityError):
    """An archive holds an entry that would write outside the folder it is extracted to."""


class SignatureError(IntegrityError):
    """A record in a bucket is not signed with the key that its job has."""


class RecordError(KineticError, ValueError):
    """A persisted record cannot be understood."""


class FutureRecordError(RecordError):
    """A record was written by a newer version of Kinetic than this one."""


class UnavailableError(KineticError):
    """A service was not reached for as long as was waited for it; what it keeps goes on all the same."""


class StoreError(KineticError):
    """A store did not do what was asked."""


class ObjectNotFoundError(StoreError, FileNotFoundError):
    """No object of that name."""


class PreconditionFailedError(StoreError):
    """The object is not of the generation that the caller expected: somebody else was first."""


class StorePermissionError(StoreError, PermissionError):
    """The store is there, and we may not."""


class CredentialsError(StoreError):
    """A bucket was asked for without credentials that it takes."""


class BucketNotFoundError(StoreError):
    """There is no bucket of that name."""


class StoreUnavailableError(StoreError, UnavailableError):
    """A store did not answer, or only with errors that pass, for as long as was waited."""

    sent = True
    """Whether a request may have reached it all the same."""
