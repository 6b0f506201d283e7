"""Regions, zones, machine types and accelerators, and the grammar of names and labels."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from kinetic_servers.google.state import invalid

NAME: Final = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
LABEL_KEY: Final = re.compile(r"[a-z][a-z0-9_-]{0,62}")
LABEL_VALUE: Final = re.compile(r"[a-z0-9_-]{0,63}")

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
    "e2-standard-4": (4, 16, tuple(ZONES)),
    "n1-standard-4": (4, 15, ("us-central1-a", "us-central1-b", "us-west1-a", "europe-west4-a")),
    "g2-standard-4": (4, 16, ("us-central1-a", "us-central1-b", "us-east1-b", "europe-west4-a")),
    "a2-highgpu-1g": (12, 85, ("us-central1-a", "us-central1-f", "europe-west4-a")),
    "a3-highgpu-8g": (208, 1872, ("us-central1-a", "us-east5-a", "europe-west4-b")),
    "ct3-hightpu-4t": (96, 340, ("us-central1-a", "us-central1-b", "europe-west4-a")),
    "ct4p-hightpu-4t": (240, 407, ("us-central2-b",)),
    "ct5lp-hightpu-1t": (24, 48, ("us-central1-a", "us-south1-a", "us-west1-c", "us-west4-a")),
    "ct5lp-hightpu-4t": (112, 192, ("us-central1-a", "us-south1-a", "us-west1-c", "us-west4-a")),
    "ct5lp-hightpu-8t": (224, 384, ("us-central1-a", "us-south1-a", "us-west1-c", "us-west4-a")),
    "ct5p-hightpu-4t": (208, 448, ("us-central1-a", "us-east5-a")),
    "ct6e-standard-4t": (180, 720, ("us-central1-b", "us-east5-a", "us-east5-b", "europe-west4-a")),
    "ct6e-standard-8t": (180, 1440, ("us-central1-b", "us-east5-b", "asia-northeast1-b")),
    "tpu7x-standard-4t": (224, 992, ("us-central1-c",)),
}
"""Machine type → its CPUs, GB of memory, and zones."""
ACCELERATORS: Final = {
    "nvidia-l4": ("us-central1-a", "us-central1-b", "us-east1-b", "europe-west4-a"),
    "nvidia-tesla-t4": ("us-central1-a", "us-central1-b", "us-west1-a", "europe-west4-a"),
    "nvidia-tesla-p4": ("us-central1-a", "us-central1-c"),
    "nvidia-tesla-a100": ("us-central1-a", "us-central1-f", "europe-west4-a"),
    "nvidia-h100-80gb": ("us-central1-a", "us-east5-a", "europe-west4-b"),
}
"""Type of GPU → its zones."""


def parts_of(name: str, *kinds: str) -> Mapping[str, str]:
    """Return the names in a resource's name, which must have these kinds: `projects` → its id, …"""
    names = name.split("/")
    found = dict(zip(names[::2], names[1::2], strict=False))
    if tuple(names[::2]) != kinds or len(names) % 2 or not all(names[1::2]):
        raise invalid(f"Invalid name {name!r}: it must be {'/*/'.join(kinds)}/*.")
    return found
