"""Build contexts in the builds bucket, named by their digests."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final, cast

from kinetic_images.builders.builder import BuildReports
from kinetic_images.builders.cloud_build.request import Source
from kinetic_images.builders.dockerfile.context import BuildContext
from kinetic_images.errors import BuildError, BuildInputError
from kinetic_payload.errors import PreconditionFailedError
from kinetic_payload.layout import build_context
from kinetic_payload.stores.store import ABSENT, Store

_RENEWED: Final = 12 * 3600.0
"""The age in seconds at which a context is renewed, so that no lifecycle rule removes it before it is used."""


def check_bucket(store: Store) -> None:
    """Refuse a *store* that Cloud Build cannot read.

    Raises:
        BuildInputError: It is not a bucket.
    """
    if store.location.kind != "gs":
        raise BuildInputError(
            f"Cloud Build reads its input from a bucket, and {store.location} is not one.",
            hint="Use a bucket, gs://BUCKET, or another builder.",
        )


def stored_context(context: BuildContext, store: Store, reports: BuildReports) -> Source:
    """Return *context* as an object of *store*, which is a bucket; write it unless it exists.

    Raises:
        BuildInputError: *store* is not a bucket, or a file of the context cannot be used.
        StoreError: The bucket cannot be used.
    """
    check_bucket(store)
    name = build_context(context.digest)
    if not _exists(store, name):
        _write(context, store, name, reports)
    return Source(location=store.location, object=name)


def _exists(store: Store, name: str) -> bool:
    found = store.stat(name)
    if found is None:
        return False
    if store.now() - found.updated < _RENEWED:
        return True
    try:
        return store.renew(name, if_generation=found.generation) is not None
    except PreconditionFailedError:
        return True  # Another process has just renewed it.


def _write(context: BuildContext, store: Store, name: str, reports: BuildReports) -> None:
    with tempfile.NamedTemporaryFile(prefix="kinetic-context-") as file:
        try:
            context.write_archive(cast("BinaryIO", file), compressed=True)
            file.flush()
        except OSError as error:
            raise BuildError(
                f"The build context cannot be written to {file.name}: {error.strerror or error}.",
                hint="Free some space there, or name another folder with TMPDIR.",
            ) from error
        size = Path(file.name).stat().st_size
        # The same name has the same contents: it does not matter which process wrote it.
        with (
            suppress(PreconditionFailedError),
            reports.progress("uploading the build context", size) as advance,
        ):
            store.upload(name, Path(file.name), if_generation=ABSENT, progress=advance)
