"""Warn of buckets in another region than the cluster: reading them is slow, and is billed."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from kinetic.errors import KineticError
from kinetic.settings.settings import Settings

_REGION: Final = re.compile(r"([a-z]+(?:-[a-z]+)+[0-9]+)(?:-[a-z])?")
GKE_CONTEXT: Final = re.compile(r"gke_(?P<project>[^_]+)_(?P<location>[^_]+)_(?P<cluster>[^_]+)")
"""A context of a kubeconfig that `gcloud` made for a cluster."""
# https://cloud.google.com/storage/docs/locations
_DUAL: Final = {
    "asia1": ("asia-northeast1", "asia-northeast2"),
    "eur4": ("europe-north1", "europe-west4"),
    "eur5": ("europe-west1", "europe-west2"),
    "eur7": ("europe-west2", "europe-west3"),
    "eur8": ("europe-west3", "europe-west6"),
    "nam4": ("us-central1", "us-east1"),
}
_OUTSIDE_EU: Final = ("europe-west2", "europe-west6")

_places: dict[str, tuple[str, ...]] = {}
_lock = threading.Lock()


def cluster_region(settings: Settings, context: str | None, known: str | None = None) -> str | None:
    """Return the region of the cluster; None if it is not known.

    *known* is the cluster's location according to GKE. A context that was made for GKE contains the
    location. The zone of the settings is used if it was set, not if it is the default.
    """
    gke = GKE_CONTEXT.fullmatch(context or "")
    zone = settings.zone
    set_by_user = "" if zone.is_default else zone.value
    found = _REGION.fullmatch(known or (gke["location"] if gke else set_by_user))
    return found[1] if found else None


def region_warning(
    bucket: str, region: str | None, *, places: Callable[[str], Sequence[str]] | None = None
) -> str | None:
    """Return a warning if *bucket* is not in *region*; None if it is, or if one of them is not known.

    A process asks for the location of a bucket once. *places* returns it.
    """
    if region is None:
        return None
    with _lock:
        if bucket not in _places:
            _places[bucket] = tuple((places or _ask)(bucket))
        found = _places[bucket]
    if not found or any(contains(place, region) for place in found):
        return None
    return (
        f"the bucket gs://{bucket} is in {' and '.join(found)}, and the cluster is in {region}: "
        "transfers between them are slower, and Google bills them"
    )


def bucket_of(uri: str) -> str:
    """Return the bucket in *uri*, which begins with `gs://`."""
    return uri.removeprefix("gs://").partition("/")[0]


def contains(place: str, region: str) -> bool:
    """Return whether *place*, a location of buckets in lower case, contains *region*."""
    if place in _DUAL:
        return region in _DUAL[place]
    if place == "eu":
        return region.startswith("europe-") and region not in _OUTSIDE_EU
    return place == region or (place in ("us", "asia") and region.startswith(f"{place}-"))


def _ask(bucket: str) -> Sequence[str]:
    from kinetic_payload.stores import open_bucket

    # It is only a warning. An object of the bucket can often be read without this permission.
    with suppress(KineticError):
        return open_bucket(bucket).places()
    return ()
