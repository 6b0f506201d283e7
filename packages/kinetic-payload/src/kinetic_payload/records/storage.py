"""Signed records in a store: the job writes each once, and only what the job wrote is read.

A process that can write to a bucket can put an object where a record of a job will be. Such an object is not
signed with the job's key, so it is replaced. Among writers that have the key, the first record stays.
"""

from __future__ import annotations

from typing import Final

from kinetic_payload.errors import (
    ObjectNotFoundError,
    PreconditionFailedError,
    RecordError,
    SignatureError,
    StoreError,
)
from kinetic_payload.limits import read_record
from kinetic_payload.records.signing import Signing
from kinetic_payload.stores.store import ABSENT, Store

_TRIES: Final = 20


def write_once(store: Store, signer: Signing, name: str, data: bytes) -> bytes:
    """Write the record *data*, signed, as *name* unless the job has written one; return the record that is there.

    An object that *signer* does not verify is replaced, unless it changes meanwhile. Without a key nothing is
    replaced.

    Raises:
        RecordError: There is no key, and the object is too large to be a record.
        StoreError: The store refused the record, or another process overwrites it again and again.
    """
    signed = signer.sign(data, name)
    generation = ABSENT
    for _ in range(_TRIES):
        try:
            store.write(name, signed, if_generation=generation)
        except PreconditionFailedError:
            # Before reading: an object that changes afterwards is not replaced.
            info = store.stat(name)
            written = read_verified(store, signer, name) if info is not None else None
            if written is not None:
                return written
            generation = info.generation if info is not None else ABSENT
        else:
            return signed
    raise StoreError(
        f"{store.location}/{name} is overwritten again and again by a process without the job's key.",
        hint="Find out who can write to the bucket.",
    )


def read_verified(store: Store, signer: Signing, name: str) -> bytes | None:
    """Return the record *name*; None if there is none, or *signer* does not verify it.

    Raises:
        RecordError: There is no key, and the object is too large to be a record.
        StoreError: It could not be read.
    """
    try:
        data = read_record(store, name)
        signer.verify(data, name)
    except (ObjectNotFoundError, SignatureError):
        return None
    except RecordError:
        if signer.key is None:
            raise
        return None
    return data
