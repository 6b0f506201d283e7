"""Download of uploaded `Data`: verified as a whole before it is renamed into place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from kinetic_payload.archives.extract import Contents, Extraction, expected_tree
from kinetic_payload.data.marker import MAX_PACK, Listed, Marker, parse_marker
from kinetic_payload.data.references import DataRef
from kinetic_payload.digests import TreeEntry, file_digest
from kinetic_payload.errors import (
    DataError,
    FutureRecordError,
    IntegrityError,
    KineticError,
    ObjectNotFoundError,
    RecordError,
    StoreError,
)
from kinetic_payload.files.atomic import prepare_beside, rename_into_place
from kinetic_payload.files.private import FULL_DISK
from kinetic_payload.layout import data_marker, data_prefix
from kinetic_payload.limits import read_record
from kinetic_payload.progress import Advance, TrackProgress, silent
from kinetic_payload.project.context import damaged_hint
from kinetic_payload.stores.store import Store
from kinetic_payload.threads import parallel_map

_STREAMS: Final = 8
"""Objects downloaded at once: more would cost memory and disk, and gain nothing."""


def download_data(store: Store, ref: DataRef, dest: Path, *, track: TrackProgress = silent) -> Path:
    """Download the data of *ref* to the path *dest*, which does not exist yet.

    A folder becomes the folder *dest*, and a file becomes the file *dest*. Everything is verified before
    it is renamed into place; a failure leaves nothing behind. Returns *dest*.

    Raises:
        DataError: It was not uploaded, does not exist any more, or cannot be written.
        IntegrityError: It is not what was uploaded; the message or the hint names the objects.
    """
    if ref.digest is None:
        raise DataError(f"The data {ref.source!r} was not uploaded with its call.")
    with _errors_explained(store, ref, dest), prepare_beside(dest) as folder:
        try:
            found = read_record(store, data_marker(ref.digest))
            marker = parse_marker(found, digest=ref.digest)
        except FutureRecordError:
            raise
        except RecordError as error:
            raise IntegrityError(error.message) from error
        total = sum(listed.size for listed in marker.objects)
        with track(f"downloading {ref.name}", total) as advance:
            tree = _fetch_tree(store, marker, folder, advance)
        file = tree / ref.name
        if not (ref.is_dir or file.is_file()):
            raise IntegrityError(f"The data should be the file {ref.name!r}.")
        rename_into_place(tree if ref.is_dir else file, dest)
    return dest


def _fetch_tree(store: Store, marker: Marker, folder: Path, advance: Advance) -> Path:
    """Download the objects that *marker* lists into *folder*; return the folder of the verified tree in it."""
    prefix, extraction = data_prefix(marker.digest), Extraction(folder / "tree")

    def fetch(listed: Listed) -> None:
        name = prefix + listed.name
        try:
            if listed.digest:
                entry = TreeEntry(listed.path, "file", listed.mode, listed.size, listed.digest)
                path = extraction.place(entry)
                store.download(name, path, progress=advance)
                if file_digest(path, listed.path) != listed.digest:
                    raise IntegrityError(f"The file {listed.path!r} is damaged.")
                path.chmod(listed.mode)
            else:
                file = folder / name.rpartition("/")[2]
                store.download(name, file, progress=advance)
                with file.open("rb") as stream:
                    extraction.add(Contents(stream, max_size=MAX_PACK))
                file.unlink()
        except IntegrityError as error:
            raise type(error)(f"{name}: {error.message}") from error

    # The largest first, so that none runs alone at the end.
    largest_first = sorted(marker.objects, key=lambda listed: listed.size, reverse=True)
    parallel_map(fetch, largest_first, threads=min(store.concurrency, _STREAMS))
    # Each file matches its archive or the marker, but neither of them is trusted. The digest of the
    # whole tree is.
    expected_tree(extraction.entries, marker.digest)
    extraction.finish()
    return folder / "tree"


@contextmanager
def _errors_explained(store: Store, ref: DataRef, dest: Path) -> Iterator[None]:
    """Name the data in errors about it, and *dest* if it cannot be written there."""
    what = f"The data {ref.source!r}"
    try:
        yield
    except ObjectNotFoundError as error:
        raise DataError(
            f"{what} is not in the store {store.location} any more: {error.message}",
            hint="Submit the call again: missing data is uploaded again.",
        ) from error
    except IntegrityError as error:
        message = f"{what} is not what was uploaded: {error.message}"
        names = data_prefix(str(ref.digest)), data_marker(str(ref.digest))
        raise type(error)(message, hint=damaged_hint(store, *names)) from error
    except (KineticError, OSError) as error:
        refused = error.__cause__ if isinstance(error, StoreError) else error
        if isinstance(refused, KineticError) or not isinstance(refused, OSError):
            raise
        full = refused.errno in FULL_DISK
        raise DataError(
            f"{what} cannot be written to {dest}: {refused.strerror or refused}.",
            hint="Make room on that disk." if full else getattr(error, "hint", None),
        ) from error
