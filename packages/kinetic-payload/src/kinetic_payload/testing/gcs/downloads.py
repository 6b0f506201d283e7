"""Downloads: the bytes of an object, or a range of them."""

from __future__ import annotations

import re
from email.utils import formatdate
from typing import Final

from kinetic_payload.testing.gcs.answers import Answer, ApiError, Slice
from kinetic_payload.testing.gcs.resources import etag_of
from kinetic_payload.testing.gcs.state import StoredObject

_RANGE: Final = re.compile(r"bytes\s*=\s*(\d*)\s*-\s*(\d*)\s*")


def download(found: StoredObject, wanted: str | None) -> Answer:
    """Return the bytes of an object that the header `Range` (*wanted*) requests."""
    headers = _headers(found)
    part = _range_of(wanted, found.size)
    if part is None:
        return Answer(200, Slice(found.content, 0, found.size), headers)
    start, length = part
    headers["Content-Range"] = f"bytes {start}-{start + length - 1}/{found.size}"
    return Answer(206, Slice(found.content, start, length), headers)


def _range_of(header: str | None, size: int) -> tuple[int, int] | None:
    """Return the offset and the length of the range in *header*, or None for all bytes.

    A header without a valid single range is ignored, as HTTP requires.

    Raises:
        ApiError: 416, none of these bytes exist.
    """
    match = _RANGE.fullmatch(header.strip()) if header else None
    if match is None or match[1] == match[2] == "":
        return None
    if match[1] == "":
        start, end = max(size - int(match[2]), 0), size
        satisfiable = int(match[2]) > 0 and size > 0
    else:
        start = int(match[1])
        end = min(int(match[2]) + 1, size) if match[2] else size
        if match[2] and int(match[2]) < start:
            return None
        satisfiable = start < size
    if not satisfiable:
        raise ApiError(
            416,
            "requestedRangeNotSatisfiable",
            "Request range not satisfiable",
            location=("header", "Range"),
            headers={"Content-Range": f"bytes */{size}"},
        )
    return start, end - start


def _headers(found: StoredObject) -> dict[str, str]:
    sums = [f"crc32c={found.content.crc32c}"]
    if found.content.md5 is not None:
        sums.append(f"md5={found.content.md5}")
    return {
        "Content-Type": found.fields.get("contentType", "application/octet-stream"),
        "ETag": etag_of(found.generation, found.metageneration),
        "Last-Modified": formatdate(found.updated, usegmt=True),
        "Accept-Ranges": "bytes",
        "X-Goog-Generation": str(found.generation),
        "X-Goog-Metageneration": str(found.metageneration),
        "X-Goog-Hash": ",".join(sums),
        "X-Goog-Stored-Content-Length": str(found.size),
        "X-Goog-Stored-Content-Encoding": "identity",
        "X-Goog-Storage-Class": "STANDARD",
        "Cache-Control": "no-cache, no-store, max-age=0, must-revalidate",
    }
