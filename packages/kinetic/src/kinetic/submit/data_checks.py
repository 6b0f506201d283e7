"""Checks of each `Data` of a call, made before anything is uploaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kinetic.errors import (
    CredentialsError,
    DataError,
    InvalidRequestError,
    StorePermissionError,
)

if TYPE_CHECKING:
    from kinetic.data import Data
    from kinetic.submit.request import JobRequest
    from kinetic_payload.data.sources import GcsSource
    from kinetic_payload.stores.gcs import ExternalBucket
    from kinetic_payload.stores.outages import OutageLimit


def check_data(
    data: Data,
    request: JobRequest,
    limit: OutageLimit,
    *,
    warn: Callable[[str], None],
    open_bucket: Callable[[GcsSource], ExternalBucket] | None = None,
) -> None:
    """Check that *data* exists, and that the job of *request* can use it; wait for its bucket up to *limit*.

    If this user may not read it, but the function will run elsewhere with other permissions, *warn*.

    Raises:
        DataError: It does not exist or cannot be read; the hint has similar names.
        InvalidRequestError: The job cannot use it in this form.
    """
    here = request.on_this_machine
    if data.is_local:
        data.check()
        if data.fuse and here:
            from kinetic_runner.data.mounts import why_not_read_only

            why_not = why_not_read_only()
            if why_not is not None:
                raise InvalidRequestError(
                    f"{data!r} cannot be read in place by a local job: {why_not}",
                    hint="Leave fuse=True out: then it is copied.",
                )
    elif data.is_hf:
        # The default environment has the libraries that are installed here.
        if here and request.image.mode == "default":
            _check_library(data)
    else:
        if data.fuse and here:
            raise InvalidRequestError(
                f"A local job cannot mount a bucket: {data!r}.",
                hint="Leave fuse=True out: then it is downloaded. Choose a folder or an object that "
                "is small enough to try the function with.",
            )
        from kinetic_payload.data import bucket as bucket_data
        from kinetic_payload.data.sources import parse_gcs

        source = parse_gcs(data.path)
        try:
            bucket = (open_bucket or bucket_data.open_bucket)(source)
            bucket_data.look(bucket.limited(limit), source)
        except (StorePermissionError, CredentialsError) as error:
            if here:
                raise DataError(
                    f"{data!r} cannot be read. {error.message}", hint=error.hint
                ) from error
            warn(
                f"{data!r} could not be checked: {error.message} The job will read it with the permissions "
                "of its own account."
            )


def _check_library(data: Data) -> None:
    from importlib import metadata

    from kinetic_runner.data.huggingface import LIBRARY, why_unusable

    version: str | None
    try:
        # Its metadata is enough: importing it takes seconds.
        version = metadata.version(LIBRARY)
    except metadata.PackageNotFoundError:
        version = None
    error = why_unusable(data.path, version, trusts=data.hf_trust_remote_code)
    if error is not None:
        raise error
