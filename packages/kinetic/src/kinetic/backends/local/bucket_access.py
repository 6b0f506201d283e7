"""The client library with which a job's processes reach buckets."""

from __future__ import annotations

import functools
import subprocess
import sys
from typing import Final

from kinetic.errors import SubmitError
from kinetic.requirements import BUCKET_CLIENT

_PACKAGES: Final = ("google-auth", "google-crc32c", "requests")
"""The packages that read and write buckets; `google-cloud-storage` brings them."""
_CHECK: Final = (
    "from importlib.util import find_spec as f; import sys; "
    "sys.exit(not all(map(f, ('google.auth', 'google_crc32c', 'requests'))))"
)


@functools.cache
def client_folders() -> tuple[str, ...]:
    """Return the folders in which the client for buckets and its dependencies are installed here."""
    import importlib.metadata

    from packaging.requirements import Requirement

    folders: set[str] = set()
    known: set[str] = set()
    todo = [*_PACKAGES]
    while todo:
        name = todo.pop()
        if name in known:
            continue
        known.add(name)
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # It is not needed on this platform, or optional.
        folders.add(str(distribution.locate_file("")))
        for text in distribution.requires or ():
            needed = Requirement(text)
            if needed.marker is None or needed.marker.evaluate({"extra": ""}):
                todo.append(needed.name)
    # In the order of sys.path: if there are two versions, the supervisor imports the same one.
    order = {folder: place for place, folder in enumerate(sys.path)}
    return tuple(sorted(folders, key=lambda folder: order.get(folder, len(order))))


@functools.cache
def refuse_without_client(interpreter: str, location: str) -> None:
    """Make sure that jobs that run on *interpreter* can access buckets.

    Raises:
        SubmitError: The interpreter has no client for buckets.
    """
    if interpreter == sys.executable:
        return  # This process has opened the bucket.
    done = subprocess.run(
        [interpreter, "-c", _CHECK],
        check=False,
        cwd="/",
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={},
    )
    if done.returncode != 0:
        raise SubmitError(
            f"The job's store is {location}, and {interpreter} has no {BUCKET_CLIENT} to reach it with.",
            hint=f"Add {BUCKET_CLIENT} to the project's dependencies.",
        )
