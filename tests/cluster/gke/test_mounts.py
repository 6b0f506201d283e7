"""Mounts of buckets on clusters without the driver, and where it may not be looked up."""

from __future__ import annotations

from typing import Any

from kinetic.backends.gke.checks import check_mount
from kinetic.data import Data
from kinetic_k8s.cluster.client import ApiServer
from kinetic_k8s.manifests.volumes import DRIVER
from kinetic_payload.stores.store import Location

PHOTOS = Data("gs://photos/2026/", fuse=True)
STORE = Location("gs", "jobs/team")


def test_a_user_who_may_not_look_up_the_driver_is_warned(bed: Any) -> None:
    user = ApiServer(bed.access("default", token="kube-bed-user"))

    assert DRIVER in str(check_mount(PHOTOS, STORE, user))
