"""Packages that a job's environment needs besides those of the project."""

from __future__ import annotations

from typing import Final

PICKLE: Final = "cloudpickle"
"""The package that the runner loads calls with."""
BUCKET_CLIENT: Final = "google-cloud-storage"
"""The package that the runner reads and writes buckets with."""


def bucket_requirement() -> str:
    """Return the requirement for the client of buckets, as `kinetic-payload` declares it."""
    # Imported here: most jobs on this machine use no bucket.
    import importlib.metadata

    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    for text in importlib.metadata.requires("kinetic-payload") or ():
        needed = Requirement(text)
        if canonicalize_name(needed.name) == BUCKET_CLIENT:
            return f"{needed.name}{needed.specifier}"
    return BUCKET_CLIENT


def pickle_requirement() -> str:
    """Return the requirement for the cloudpickle of this process, whose pickles the job loads."""
    import importlib.metadata

    return f"{PICKLE}=={importlib.metadata.version(PICKLE)}"
