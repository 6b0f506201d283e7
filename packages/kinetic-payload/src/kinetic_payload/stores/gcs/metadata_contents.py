"""Contents of small records in the metadata of their objects, which a list of a bucket includes.

Bytes that are not printable ASCII are percent-encoded: metadata travels in headers, too.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote_to_bytes

from kinetic_payload.stores.gcs.bucket import BucketObject
from kinetic_payload.stores.gcs.checksums import extended

CONTENT: Final = "kinetic-content"
MOST: Final = 4096
"""The most bytes of one value of metadata.

https://docs.cloud.google.com/storage/docs/reference/rpc/google.storage.v1
"""
_PLAIN: Final = bytes(code for code in range(0x20, 0x7F) if code != ord("%"))


def metadata_of(data: bytes) -> dict[str, str]:
    """Return the metadata that holds *data*; empty if *data* is too large."""
    text = quote(data, safe=_PLAIN) if len(data) <= MOST else ""
    return {CONTENT: text} if 0 < len(text) <= MOST else {}


def content_of(found: BucketObject) -> bytes | None:
    """Return the content of *found* from its metadata; None if it is missing or does not match the checksum."""
    text = found.metadata.get(CONTENT)
    if not isinstance(text, str) or len(text) > MOST:
        return None
    data = unquote_to_bytes(text)
    return data if (len(data), extended(0, data)) == (found.size, found.crc32c) else None
