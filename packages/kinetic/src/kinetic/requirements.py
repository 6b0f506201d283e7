"""Packages that a job's environment needs besides those of the project."""

from __future__ import annotations

import importlib.metadata
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PICKLE: Final = "cloudpickle"
"""The package that the runner loads calls with."""
BUCKET_CLIENT: Final = "google-cloud-storage"
"""The package that the runner reads and writes buckets with."""


def bucket_requirement() -> str:
    """Return the requirement for the client of buckets, as `kinetic-payload` declares it."""
    for text in importlib.metadata.requires("kinetic-payload") or ():
        needed = Requirement(text)
        if canonicalize_name(needed.name) == BUCKET_CLIENT:
            return f"{needed.name}{needed.specifier}"
    return BUCKET_CLIENT


def pickle_requirement() -> str:
    """Return the requirement for the cloudpickle of this process, whose pickles the job loads."""
    return f"{PICKLE}=={importlib.metadata.version(PICKLE)}"
