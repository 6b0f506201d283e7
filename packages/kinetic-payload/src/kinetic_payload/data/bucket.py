"""`Data` in a bucket (`gs://`): check that it exists, and download it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kinetic_payload import stores
from kinetic_payload.archives.safe_paths import unsafe_path
from kinetic_payload.errors import (
    BucketNotFoundError,
    DataError,
    ObjectNotFoundError,
    StorePermissionError,
)
from kinetic_payload.files.atomic import prepare_beside, rename_into_place
from kinetic_payload.progress import silent
from kinetic_payload.threads import parallel_map

if TYPE_CHECKING:
    from kinetic_payload.data.sources import GcsSource
    from kinetic_payload.progress import Advance, TrackProgress
    from kinetic_payload.stores.gcs import BucketObject, ExternalBucket

_LONGEST_PART: Final = 255
"""The most bytes of a file name on file systems of Linux and macOS."""
_AT_ONCE: Final = 16
"""Objects downloaded at once, for each `Data`."""


def open_bucket(source: GcsSource) -> ExternalBucket:
    """Open the bucket of *source* with the credentials of the environment, or anonymously.

    Without credentials, public buckets can be read. No request is sent yet.

    Raises:
        StoreError: Google's library is not installed.
    """
    return stores.open_bucket(source.bucket)


def look(bucket: ExternalBucket, source: GcsSource) -> None:
    """Check that *source* exists in its bucket, opened as *bucket*.

    Raises:
        DataError: It does not; the hint suggests similar names.
        StorePermissionError: Permission is missing.
    """
    with _missing_bucket_reported(source):
        if source.is_dir:
            if next(bucket.list(source.name), None) is None:
                raise _missing_folder(bucket, source)
        elif bucket.stat(source.name) is None:
            raise _missing_object(bucket, source)


def download(
    bucket: ExternalBucket, source: GcsSource, dest: Path, *, track: TrackProgress = silent
) -> None:
    """Download *source* to the path *dest*, as a whole or not at all.

    An object becomes the file *dest*. The objects below a prefix become the folder *dest*, with the same
    relative paths; an empty object whose name ends in a slash is a folder.

    Raises:
        DataError: It does not exist, an object's name cannot be a path, or an object was deleted meanwhile.
    """
    with prepare_beside(dest) as folder:
        found = folder / "found"
        with _missing_bucket_reported(source):
            if source.is_dir:
                objects = list(bucket.list(source.name))
                if not objects:
                    raise _missing_folder(bucket, source)
                folders, files = bucket_tree(source, objects)
                found.mkdir()
                for name in folders:
                    (found / name).mkdir()
                wanted = [(info, found / info.name.removeprefix(source.name)) for info in files]
            else:
                info = bucket.stat(source.name)
                if info is None:
                    raise _missing_object(bucket, source)
                wanted = [(info, found)]
            with track(_TASK, sum(info.size for info, _ in wanted)) as advance:
                parallel_map(
                    lambda one: _fetch(bucket, source, *one, advance), wanted, threads=_AT_ONCE
                )
        rename_into_place(found, dest)


def _fetch(
    bucket: ExternalBucket, source: GcsSource, info: BucketObject, path: Path, advance: Advance
) -> None:
    # On a file system that ignores case, 'a' must not silently replace 'A'.
    try:
        file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
    except FileExistsError as error:
        raise DataError(
            f"{_uri(source, info.name)} cannot be written: on this file system its name is the same "
            f"as that of another object.",
            hint=_RENAME,
        ) from error
    mode = os.fstat(file).st_mode
    os.close(file)
    try:
        bucket.download(info.name, path, progress=advance)
        # The mode of any new file: a download is private to its user at first.
        path.chmod(mode)
    except ObjectNotFoundError as error:
        raise DataError(
            f"{_uri(source, info.name)} disappeared while it was being downloaded.",
            hint="It was deleted, perhaps by a lifecycle rule of its bucket.",
        ) from error


def bucket_tree(
    source: GcsSource, found: Sequence[BucketObject]
) -> tuple[list[str], list[BucketObject]]:
    """Decide which folders and files the objects *found* below a prefix become.

    The folders are relative to the prefix; each comes before its contents.

    Raises:
        DataError: A name cannot be a path below a folder, or one object lies inside another.
    """
    folders: set[str] = set()
    files: dict[str, BucketObject] = {}
    for info in found:
        name = info.name.removeprefix(source.name)
        if name.endswith("/") or not name:
            if info.size:
                raise _unusable_name(
                    source, info.name, "its name ends in a slash, but it has contents"
                )
            name = name.removesuffix("/")
            folder = name
        else:
            files[name] = info
            folder = name.rpartition("/")[0]
        if any(len(part.encode()) > _LONGEST_PART for part in name.split("/")):
            problem: str | None = f"a part of it is longer than {_LONGEST_PART} bytes"
        else:
            problem = unsafe_path(name) if name else None
        if problem is not None:
            raise _unusable_name(source, info.name, problem)
        while folder and folder not in folders:
            folders.add(folder)
            folder = folder.rpartition("/")[0]
    for name in files.keys() & folders:
        raise _unusable_name(
            source, files[name].name, "other objects lie below it, as if it were a folder"
        )
    return sorted(folders), list(files.values())


def _unusable_name(source: GcsSource, name: str, why: str) -> DataError:
    return DataError(f"{_uri(source, name)} cannot be a file below a folder: {why}.", hint=_RENAME)


def _missing_folder(bucket: ExternalBucket, source: GcsSource) -> DataError:
    uri = _uri(source, source.name)
    if not source.name:
        return DataError(f"{uri} does not exist: the bucket is empty.", hint="Check the name.")
    single = source.name.rstrip("/")
    if single and bucket.stat(single) is not None:
        return DataError(
            f"{uri} does not exist, but an object of that name does.",
            hint=f"A slash at the end means a folder. For the object write {_uri(source, single)}",
        )
    return DataError(
        f"{uri} does not exist: nothing lies below it.", hint=_similar_names_hint(bucket, source)
    )


def _missing_object(bucket: ExternalBucket, source: GcsSource) -> DataError:
    uri = _uri(source, source.name)
    with suppress(StorePermissionError):
        if next(bucket.list(f"{source.name}/"), None) is not None:
            return DataError(
                f"{uri} is not an object, but there is a folder of that name.",
                hint=f"Without a slash at the end it means one object. For the folder write {uri}/",
            )
    return DataError(f"{uri} does not exist.", hint=_similar_names_hint(bucket, source))


def _similar_names_hint(bucket: ExternalBucket, source: GcsSource) -> str:
    """Return a hint with similar names, from one page of a list if listing is permitted."""
    from difflib import get_close_matches

    wanted = source.name.rstrip("/")
    parent = wanted.rpartition("/")[0]
    below = f"{parent}/" if parent else ""
    try:
        # Also list names with the same beginning: a folder may have more than one page.
        alike = below + wanted[len(below) :][:2]
        names = {*bucket.entries(below), *bucket.entries(alike)} - {below}
    except StorePermissionError:
        return "Similar names could not be listed. Check the name."
    within = {name[len(below) :]: name for name in names}
    close = [within[match] for match in get_close_matches(source.name[len(below) :], within, n=3)]
    if close:
        return f"Did you mean {' or '.join(_uri(source, name) for name in close)}?"
    if not names and below:
        return f"Nothing lies in {_uri(source, below)} either. Check the name and the bucket."
    return "Check the name: upper and lower case differ."


def _uri(source: GcsSource, name: str) -> str:
    return f"gs://{source.bucket}/{name if name.isprintable() else ascii(name)[1:-1]}"


@contextmanager
def _missing_bucket_reported(source: GcsSource) -> Iterator[None]:
    """Report a missing bucket as an error of *source*: the store's hint is about Kinetic's own bucket."""
    try:
        yield
    except BucketNotFoundError as error:
        raise DataError(
            f"There is no bucket {source.bucket!r}.",
            hint="Check its spelling. A bucket's name does not depend on the project.",
        ) from error


_TASK: Final = "downloading data"
_RENAME: Final = "Rename or leave out that object: choose a longer prefix, or name single objects."
