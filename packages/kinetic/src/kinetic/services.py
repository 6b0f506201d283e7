"""Stores and backends, made from what a request or a handle says when they are first needed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kinetic.errors import InvalidRequestError
from kinetic_payload.store import Location, Store, parse_location

if TYPE_CHECKING:
    from kinetic.backends import Backend
    from kinetic.settings import Settings

LOCAL_BACKENDS = ("local", "local-gke", "local-pathways")
"""The names under which jobs run on this machine."""


@dataclass(frozen=True)
class Services:
    """Where a job's objects are, and what runs it."""

    store: Store
    backend: Backend


def jobs_location(settings: Settings, backend: str) -> Location:
    """Return the store of jobs that *backend* runs: `KINETIC_STORE`, else the backend's own."""
    named = settings.store.value
    if named:
        return parse_location(named)
    if backend in LOCAL_BACKENDS:
        return local_store_location(Path(settings.home.value))
    return parse_location(f"gs://{settings.project.value}-kn-{settings.cluster.value}-jobs")


def local_store_location(home: Path) -> Location:
    """Return where the jobs of this machine are kept."""
    return Location("folder", str(home / "store"))


def connect(backend: str, location: Location, home: Path) -> Services:
    """Return the services of jobs that *backend* runs with their objects at *location*.

    Raises:
        InvalidRequestError: This version cannot speak to that backend.
    """
    from kinetic_payload.stores import open_store

    if backend not in LOCAL_BACKENDS:
        raise InvalidRequestError(
            f"This version of Kinetic cannot reach the backend {backend!r} yet.",
            hint="Use backend='local', or KINETIC_BACKEND=local.",
        )
    from kinetic.backends.local import LocalBackend

    store = open_store(location)
    return Services(store, LocalBackend(home, store))
