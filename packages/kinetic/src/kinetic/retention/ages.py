"""After how many days what Kinetic stores is deleted: in the buckets of a cluster, in a folder store, in a home."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

DAY: Final = 86_400.0

Expiry = Sequence[tuple[str, int]]
"""Beginnings of names, or their ends after `*`, and after how many days such objects are deleted."""

EXPIRY: Final = (
    ("contexts/", 90),
    # Markers go first: one that outlives its data would let a job find nothing.
    ("data-markers/", 90),
    ("data/", 97),
    ("logs/", 90),
    ("*/payload.pkl", 90),
)
"""The rules of the jobs bucket; a collection applies them to a folder store. Use resets the age of the first three."""
BUILDS_EXPIRY: Final = (("builds/contexts/", 7), ("builds/logs/", 30), ("builds/resolved/", 180))
"""The rules of the builds bucket."""
UNUSED_DAYS: Final = 14
"""After how many days without use snapshots, environments and bundles of this machine are removed.

Here, unlike in a bucket, they cost the disk of one user, and are made again at once: the project is here.
"""
FOLDER_EXPIRY: Final = (
    *{**dict(EXPIRY), "contexts/": UNUSED_DAYS, "data-markers/": dict(EXPIRY)["data/"]}.items(),
)
"""The ages in a folder store. A snapshot that a kept job names has the age of the bucket's rule."""
LEFT_AGE: Final = DAY
"""Seconds after which a submit without a record counts as killed."""


def days_of(name: str, expiry: Expiry) -> int | None:
    """Return after how many days the object *name* is deleted; None: never."""
    return min(
        (
            days
            for pattern, days in expiry
            if (name.endswith(pattern[1:]) if pattern[:1] == "*" else name.startswith(pattern))
        ),
        default=None,
    )
