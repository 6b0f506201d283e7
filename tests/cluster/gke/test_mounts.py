"""Mounts of buckets on clusters with the driver, without it, and where it may not be looked up."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kinetic.backends.gke.checks import check_mount
from kinetic.data import Data, to_ref
from kinetic.errors import InvalidRequestError
from kinetic_k8s.cluster.client import ApiServer
from kinetic_k8s.cluster.connection import Access
from kinetic_k8s.manifests.job import job_manifest
from kinetic_k8s.manifests.volumes import DRIVER, fuse_volumes
from kinetic_payload.stores.store import Location

PHOTOS = Data("gs://photos/2026/", fuse=True)
STORE = Location("gs", "jobs/team")


@pytest.mark.usefixtures("drivers")
def test_without_the_driver_a_mount_is_refused_with_the_command_that_enables_it(
    relayed: ApiServer,
) -> None:
    with pytest.raises(InvalidRequestError, match=DRIVER) as caught:
        check_mount(PHOTOS, STORE, relayed)

    assert "gs://photos/2026/" in str(caught.value)
    assert "GcsFuseCsiDriver=ENABLED" in str(caught.value)


def test_a_user_who_may_not_look_up_the_driver_is_warned(bed: Any) -> None:
    user = ApiServer(bed.access("default", token="kube-bed-user"))

    assert DRIVER in str(check_mount(PHOTOS, STORE, user))


@pytest.mark.usefixtures("drivers")
def test_with_the_driver_mounts_are_accepted_and_it_is_looked_up_once(
    bed: Any, relayed_access: Access, relay: Any
) -> None:
    # A driver of that name alone: the bed has no node on which it runs.
    driver = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": {"name": DRIVER},
        "spec": {
            "attachRequired": False,
            "podInfoOnMount": True,
            "volumeLifecycleModes": ["Ephemeral"],
        },
    }
    cluster = ApiServer(relayed_access, pause=lambda _: None)
    bed.kubectl("apply", "-f", "-", given=json.dumps(driver))
    try:
        assert check_mount(PHOTOS, STORE, cluster, path="/photos") is None
        assert check_mount(Data("gs://photos/a.jpg", fuse=True), STORE, cluster) is None
    finally:
        bed.kubectl("delete", "csidriver", DRIVER)
    assert len(relay.requests) == 1


@pytest.mark.parametrize(
    ("uri", "path", "message"),
    [
        ("gs://photos/a,b/", None, "split at every comma"),
        ("gs://photos/2026/", "/data:1", "mount path"),
    ],
)
def test_an_impossible_mount_is_refused_without_a_request(
    relayed: ApiServer, relay: Any, uri: str, path: str | None, message: str
) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        check_mount(Data(uri, fuse=True), STORE, relayed, path=path)
    assert relay.requests == []


def test_the_cluster_accepts_a_job_with_mounts(cluster: ApiServer, a_job: Any) -> None:
    data = [
        (Data("gs://photos/2026/", fuse=True), "/photos"),
        (Data("gs://photos/a.jpg", fuse=True), None),
    ]
    refs = [to_ref(one, f"d{n}", mount=path) for n, (one, path) in enumerate(data)]

    spec = a_job("pass", volumes=fuse_volumes(refs, STORE))
    accepted = cluster.create(job_manifest(spec), dry_run=True)

    pod = accepted["spec"]["template"]
    assert pod["metadata"]["annotations"]["gke-gcsfuse/volumes"] == "true"
    mounts = pod["spec"]["containers"][0]["volumeMounts"]
    assert {one["mountPath"] for one in mounts} >= {"/photos", "/kinetic/data/d1"}
