"""The store and the backend of a job, made when they are first needed."""

from __future__ import annotations

from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from kinetic.backends.registry import entry_of
from kinetic.errors import ConfigurationError
from kinetic_payload.frozen import frozen
from kinetic_payload.records.signing import UNSIGNED, Signing
from kinetic_payload.stores.store import Location, Store, parse_location

if TYPE_CHECKING:
    from kinetic.backends.backend import Backend
    from kinetic.settings.keys import KeySigner, KeySource
    from kinetic.settings.settings import Settings
    from kinetic.target import Target
    from kinetic_payload.stores.outages import OutageLimit

LOOK = 10.0
"""Seconds that an operation which only reads waits for a store or a cluster that cannot be reached."""


@frozen()
class Services:
    """A job's store, its backend, and the key of its records."""

    store: Store
    backend: Backend
    key_signer: KeySigner | None = field(default=None, kw_only=True)
    """Signs records and verifies them; None if the store is the user's own folder."""

    def limited(self, limit: OutageLimit) -> Services:
        """Return the same services for one operation, whose calls together wait for the store up to *limit*."""
        store, backend = self.store.limited(limit), self.backend.limited(limit)
        return Services(store, backend, key_signer=self.key_signer)

    @property
    def signer(self) -> Signing:
        """Signs records and verifies them, if there is a key."""
        return self.key_signer or UNSIGNED

    def sign(self, data: bytes, name: str) -> bytes:
        """Return the record *data*, signed as the object *name* where records are signed."""
        return self.signer.sign(data, name)

    def verify(self, data: bytes, name: str) -> None:
        """Make sure that *data*, read as the record *name*, is signed with our key.

        Raises:
            SignatureError: It is not: anybody who can write to the bucket may have put it there.
        """
        self.signer.verify(data, name)

    def refuse_without_key(self, data: bytes, name: str) -> None:
        """Make sure that *data*, the record *name*, is signed with our key, even if the bucket is trusted.

        Raises:
            SignatureError: It was signed with another key.
        """
        if self.key_signer is not None:
            self.key_signer.strict.verify(data, name)


def look_limit() -> OutageLimit:
    """Return the limit of an operation which only reads."""
    from kinetic.user_warnings import warn_caller
    from kinetic_payload.stores.outages import OutageLimit

    return OutageLimit(LOOK, report=warn_caller)


def jobs_location(settings: Settings, backend: str) -> Location:
    """Return the store of jobs that *backend* runs: `KINETIC_STORE`, else the backend's own."""
    named = settings.store.value
    if named:
        return parse_location(named)
    if entry_of(backend).on_this_machine:
        return local_store_location(Path(settings.home.value))
    return cluster_location(settings)


def cluster_location(settings: Settings) -> Location:
    """Return the bucket of the jobs of the cluster that the settings name.

    Raises:
        ConfigurationError: They name no project, which is a part of the bucket's name.
    """
    if settings.project.value is None:
        raise ConfigurationError(
            "The bucket for the objects of jobs is not known: neither a store nor a project is set.",
            hint="Set KINETIC_STORE=gs://BUCKET, or KINETIC_PROJECT for its default bucket.",
        )
    return parse_location(f"gs://{jobs_bucket(settings.project.value, settings.cluster.value)}")


def jobs_bucket(project: str, cluster: str) -> str:
    """Return the name of the bucket of the jobs of a cluster."""
    return f"{project}-kn-{cluster}-jobs"


def local_store_location(home: Path) -> Location:
    """Return where the jobs of this machine are kept."""
    return Location("folder", str(home / "store"))


def connect(backend: str, target: Target, location: Location, settings: Settings) -> Services:
    """Return the services of jobs that *backend* runs in *target* with their objects at *location*.

    Raises:
        InvalidRequestError: This version has no such backend.
        StoreError: The store cannot be opened, for instance without credentials.
    """
    return entry_of(backend).connect()(target, location, settings)


def open_at(location: Location, limit: OutageLimit | None = None) -> Store:
    """Open the store at *location*; outages are reported to the user, unless there is a *limit*, which reports them."""
    from kinetic.user_warnings import warn_caller
    from kinetic_payload.stores import open_store

    store = open_store(location, on_outage=warn_caller)
    return store if limit is None else store.limited(limit)


def key_signer_of(location: Location, keys: KeySource) -> KeySigner | None:
    """Return the signer of the records of a store at *location*, with a key of *keys*; None for a folder."""
    if location.kind != "gs":
        return None
    from kinetic.settings.keys import KeySigner
    from kinetic.settings.settings import trusts_bucket

    # Called only when a signature is wrong: the variable may be set after a first refusal.
    return KeySigner(keys, trusting=trusts_bucket)
