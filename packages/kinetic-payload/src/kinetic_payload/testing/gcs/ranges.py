"""Byte ranges of downloads."""

from __future__ import annotations

import re
from typing import Final

from kinetic_payload.testing.gcs.answers import ApiError

_RANGE: Final = re.compile(r"bytes\s*=\s*(\d*)\s*-\s*(\d*)\s*")


def range_of(header: str | None, size: int) -> tuple[int, int] | None:
    """Return first byte and length that *header* asks for; None: everything.

    What is no single range is ignored, as HTTP wants.

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
