"""Regions, zones, machine types and accelerators, and the grammar of names and labels."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from kinetic_servers.google.state import invalid

NAME: Final = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_LABEL: Final = re.compile(r"[a-z][a-z0-9_-]{0,62}=[a-z0-9_-]{0,63}")

REGIONS: Final = {
    "asia-northeast1": "abc",
    "europe-west1": "bcd",
    "europe-west4": "abc",
    "us-central1": "abcf",
    "us-central2": "b",
    "us-east1": "bcd",
    "us-east5": "abc",
    "us-south1": "abc",
    "us-west1": "abc",
    "us-west4": "abc",
}
"""Region → the letters of its zones. Google has more."""
ZONES: Final = {f"{region}-{each}": region for region in REGIONS for each in REGIONS[region]}

MACHINES: Final = {
    "g2-standard-4": ("us-central1-a", "us-central1-b", "us-east1-b", "europe-west4-a"),
    "ct4p-hightpu-4t": ("us-central2-b",),
    "ct6e-standard-4t": ("us-central1-b", "us-east5-a", "us-east5-b", "europe-west4-a"),
    "ct6e-standard-8t": ("us-central1-b", "us-east5-b", "asia-northeast1-b"),
}
"""Machine type → its zones. Google has more."""
ACCELERATORS: Final = {
    "nvidia-l4": ("us-central1-a", "us-central1-b", "us-east1-b", "europe-west4-a"),
    "nvidia-tesla-t4": ("us-central1-a", "us-central1-b", "us-west1-a", "europe-west4-a"),
    "nvidia-tesla-p4": ("us-central1-a", "us-central1-c"),
}
"""Type of GPU → its zones."""


def parts_of(name: str, *kinds: str) -> Mapping[str, str]:
    """Return the names in a resource's name, which must have these kinds: `projects` → its id, …"""
    names = name.split("/")
    found = dict(zip(names[::2], names[1::2], strict=False))
    if tuple(names[::2]) != kinds or len(names) % 2 or not all(names[1::2]):
        raise invalid(f"Invalid name {name!r}: it must be {'/*/'.join(kinds)}/*.")
    return found


def check_labels(labels: Mapping[str, str]) -> None:
    """Refuse labels with characters that none may have."""
    for key, value in labels.items():
        if not _LABEL.fullmatch(f"{key}={value}"):
            raise invalid(f"Invalid label: {key}={value}")
