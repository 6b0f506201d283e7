"""Packages that a job's environment needs besides those of the project."""

from __future__ import annotations

from typing import Final

PICKLE: Final = "cloudpickle"
"""The package that the runner loads calls with."""
BUCKET_CLIENT: Final = "google-cloud-storage"
"""The package that brings what the runner reads and writes buckets with, and that functions use for them."""
BUCKET_REQUIREMENT: Final = f"{BUCKET_CLIENT}>=3.1"


def pickle_requirement() -> str:
    """Return the requirement for the cloudpickle of this process, whose pickles the job loads."""
    import importlib.metadata

    return f"{PICKLE}=={importlib.metadata.version(PICKLE)}"
