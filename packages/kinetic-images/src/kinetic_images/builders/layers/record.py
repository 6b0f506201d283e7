"""RECORD: the list of the installed files of a package, from which tools uninstall and check it."""

from __future__ import annotations

import base64
import csv
import io
import posixpath
from collections.abc import Iterable

from kinetic_images.builders.layers.layout import SITE

RecordRow = tuple[str, str, str]
"""A path relative to the folder of modules, its hash (`sha256=…`) and its size; empty if unknown."""


def recorded_path(path: str) -> str:
    """Return *path*, of the image, as RECORD names it."""
    return posixpath.relpath(path, SITE)


def recorded_hash(digest: bytes) -> str:
    """Return a SHA-256 as RECORD contains it."""
    return f"sha256={base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"


def rendered(rows: Iterable[RecordRow]) -> bytes:
    """Return the file, with sorted rows."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(sorted(rows))
    return text.getvalue().encode("utf-8", "surrogateescape")
