"""Access of a job's processes to buckets: environment variables, and a client library."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Final

from kinetic.errors import SubmitError
from kinetic.jobs.requirements import BUCKET_CLIENT

_VARIABLES: Final = (
    "CLOUDSDK_ACTIVE_CONFIG_NAME",
    "GCE_METADATA_HOST",
    "GCE_METADATA_IP",
    "GCE_METADATA_ROOT",
    "GOOGLE_API_USE_CLIENT_CERTIFICATE",
    "GOOGLE_API_USE_MTLS_ENDPOINT",
    "GOOGLE_CLOUD_PROJECT",
    "GOOGLE_CLOUD_QUOTA_PROJECT",
    "GOOGLE_CLOUD_UNIVERSE_DOMAIN",
    "GOOGLE_EXTERNAL_ACCOUNT_ALLOW_EXECUTABLES",
    "KINETIC_STORAGE_ENDPOINT",
    "NO_GCE_CHECK",
    "STORAGE_EMULATOR_HOST",
)
_PATHS: Final = (
    "CLOUDSDK_CONFIG",
    "GOOGLE_API_CERTIFICATE_CONFIG",
    "GOOGLE_APPLICATION_CREDENTIALS",
)

_PACKAGES: Final = ("google-auth", "google-crc32c", "requests")
"""The packages that read and write buckets; `google-cloud-storage` brings them."""
_CHECK: Final = (
    "from importlib.util import find_spec as f; import sys; "
    "sys.exit(not all(map(f, ('google.auth', 'google_crc32c', 'requests'))))"
)


def bucket_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of *environment* that name the bucket service and its credentials.

    User code gets them too, as it gets the service account on a cluster.
    """
    found = {name: environment[name] for name in _VARIABLES if environment.get(name)}
    # Absolute, because processes of a job have other working directories.
    paths = {name: os.path.abspath(environment[name]) for name in _PATHS if environment.get(name)}  # noqa: PTH100
    return found | paths


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
