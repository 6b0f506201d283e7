"""CRC32C checksums, as Cloud Storage encodes them."""

from __future__ import annotations

import base64
import binascii

import google_crc32c


def extended(crc: int, data: bytes) -> int:
    """Return the checksum of bytes with checksum *crc*, followed by *data*."""
    return int(google_crc32c.extend(crc, data))


def encoded(crc: int) -> str:
    """Encode *crc* as the API does: big-endian, base64."""
    return base64.b64encode(crc.to_bytes(4, "big")).decode()


def decoded(text: str | None) -> int | None:
    """Decode a checksum of the API; return None if there is none."""
    if not text:
        return None
    try:
        return int.from_bytes(base64.b64decode(text, validate=True), "big")
    except binascii.Error:
        return None


def from_header(hashes: str | None) -> int | None:
    """Return the CRC32C in an `X-Goog-Hash` header; None if there is none."""
    for part in (hashes or "").split(","):
        name, _, value = part.strip().partition("=")
        if name == "crc32c":
            return decoded(value)
    return None
