"""Signatures of records (HMAC-SHA-256): without the key, write access to the store is not enough to forge one.

A signature covers the whole record, including keys that this version does not know, and the name of its object:
a record that was signed for one job is not valid for another.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import field
from typing import Any, Final, Protocol

from kinetic_payload.errors import SignatureError
from kinetic_payload.frozen import frozen

_SCHEME: Final = "hmac-sha256"
KEY_SIZE: Final = 32
"""Bytes."""


class Signing(Protocol):
    """Signs records and verifies them, with a key or without."""

    @property
    def key(self) -> bytes | None:
        """The key that records are signed with; None if they are not signed."""
        ...

    def sign(self, data: bytes, name: str) -> bytes:
        """Return the record *data* as it is to be written to the object *name*."""
        ...

    def verify(self, data: bytes, name: str) -> None:
        """Make sure that *data*, read from the object *name*, can be relied on.

        Raises:
            SignatureError: It may have been written without the key.
        """
        ...


@frozen()
class Signer:
    """Signs the records of a job with its *key*, and verifies them.

    Without a key, as for a store in the user's own folder, it accepts every record as it is.
    """

    key: bytes | None = field(default=None, repr=False)

    def sign(self, data: bytes, name: str) -> bytes:
        """Return the record *data* as it is to be written to the object *name*."""
        return data if self.key is None else signed(data, self.key, name=name)

    def verify(self, data: bytes, name: str) -> None:
        """Make sure that *data*, read from the object *name*, was signed with the key.

        Raises:
            SignatureError: It was not.
        """
        if self.key is not None:
            verify(data, self.key, name=name)


UNSIGNED: Final = Signer()
"""For a store in the user's own folder."""


def signed(data: bytes, key: bytes, *, name: str) -> bytes:
    """Return *data*, the JSON of a record, with its signature as the object *name*."""
    record = _parsed(data)
    record["signature"] = f"{_SCHEME}:{key_id(key)}:{_mac(record, key, name)}"
    return json.dumps(record, sort_keys=True, ensure_ascii=False).encode(errors="backslashreplace")


def verify(data: bytes, key: bytes, *, name: str, if_other_key: str | None = None) -> None:
    """Make sure that *data* was signed with *key* as the object *name*.

    *if_other_key* is the hint for a record that was signed with another key.

    Raises:
        SignatureError: It is not signed, is signed with another key, or was changed after it was signed.
    """
    try:
        record = _parsed(data)
        scheme, used, mac = str(record["signature"]).split(":")
        expected = _mac(record, key, name)
    except (ValueError, TypeError, KeyError, RecursionError):
        raise SignatureError(f"{name} is not signed.", hint=_HINT) from None
    if scheme != _SCHEME:
        raise SignatureError(f"{name} is signed by the unknown method {scheme[:40]!r}.", hint=_HINT)
    # Not at the top: a job whose store is a folder signs nothing, and starts faster without this import.
    from hmac import compare_digest

    if not compare_digest(mac.encode(errors="replace"), expected.encode()):
        if used == key_id(key):
            raise SignatureError(f"{name} was changed after it was signed.", hint=_HINT)
        raise SignatureError(
            f"{name} is signed with another key: {used[:8]!r}, not {key_id(key)!r}.",
            hint=if_other_key or _HINT,
        )


def key_id(key: bytes) -> str:
    """Return a text that identifies *key* without revealing it."""
    return hashlib.sha256(b"kinetic key\n" + key).hexdigest()[:8]


_HINT: Final = (
    "Nothing of it was unpickled. It was written with access to the bucket, but without the job's key: find "
    "out who can write to the bucket, and run the job again. KINETIC_TRUST_BUCKET=1 accepts it anyway."
)


def _parsed(data: bytes) -> dict[str, Any]:
    """Return the fields of a record.

    Raises:
        TypeError: It is not a JSON object.
        ValueError: It is not JSON, or has a field twice: two readers could use different values of it.
    """
    record = json.loads(data, object_pairs_hook=_unique_fields)
    if not isinstance(record, dict):
        raise TypeError("not a JSON object")
    return record


def _unique_fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a field occurs twice")
    return found


def _mac(record: dict[str, Any], key: bytes, name: str) -> str:
    rest = {field: value for field, value in record.items() if field != "signature"}
    canonical = json.dumps(rest, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    import hmac

    return hmac.new(key, f"{name}\n{canonical}".encode(), hashlib.sha256).hexdigest()
