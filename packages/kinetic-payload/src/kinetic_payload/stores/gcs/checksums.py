"""CRC32C checksums of streams and their parts, as Cloud Storage encodes them."""

from __future__ import annotations

import base64
import binascii
from typing import Final

import google_crc32c

_POLYNOMIAL: Final = 0x82F63B78
_ONE: Final = 1 << 31
"""The polynomial 1: bits are reflected."""


def extended(crc: int, data: bytes) -> int:
    """Return the checksum of bytes with checksum *crc*, followed by *data*."""
    return int(google_crc32c.extend(crc, data))


def combined(first: int, second: int, length: int) -> int:
    """Return the checksum of two pieces, one after the other, the second of *length* bytes."""
    return _product(_power(length), first) ^ second


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


def _product(a: int, b: int) -> int:
    """Multiply two polynomials modulo the one that CRC32C divides by."""
    product = 0
    bit = _ONE
    while bit:
        if a & bit:
            product ^= b
        bit >>= 1
        b = (b >> 1) ^ _POLYNOMIAL if b & 1 else b >> 1
    return product


def _power(length: int) -> int:
    """Return the polynomial that moves a checksum by *length* bytes: x to the 8 * *length*."""
    power, square = _ONE, 1 << 23
    while length:
        if length & 1:
            power = _product(square, power)
        square = _product(square, square)
        length >>= 1
    return power
