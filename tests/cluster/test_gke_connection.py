"""Clusters found by their name on GKE, or from inside a pod: where the API server is real, and GKE is ours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kinetic_k8s.cluster.client import ApiServer
from kinetic_k8s.cluster.connect import access_in_pod, connect_in_pod, connect_to_gke
from kinetic_k8s.cluster.connection import Access, Connection
from kinetic_k8s.cluster.gke import GkeApi, GoogleCredentials
from kinetic_k8s.cluster.watch import Watch, Watched
from kinetic_k8s.errors import NotAuthenticatedError, NotPermittedError, UnknownClusterError

PLACE = ("test-project", "us-central1-a", "demo")


@pytest.fixture
def google(gke: Any, bed: Any) -> Any:
    """A GKE API whose cluster `demo` is the test bed, and whose tokens the test bed accepts."""
    gke.identity.token = "kube-bed-admin"
    add(gke, bed)
    return gke


def add(gke: Any, bed: Any, **other: str) -> None:
    address = {"server": bed.environment["KUBE_BED_SERVER"], "ca": ca_of(bed)}
    gke.add("demo", **{**address, **other})


def ca_of(bed: Any) -> str:
    return Path(bed.environment["KUBE_BED_CA"]).read_text()


class Clock:
    """The time, which a test lets pass."""

    def __init__(self) -> None:
        self.passed = timedelta()

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.passed


def test_a_cluster_is_reached_by_its_name_without_a_kubeconfig(google: Any, namespace: str) -> None:
    cluster = connect_to_gke(*PLACE, namespace=namespace, endpoint=google.endpoint)
    again = connect_to_gke(*PLACE, endpoint=google.endpoint)

    assert cluster.get("Namespace", namespace) is not None
    assert again.get("Job", "none") is None
    assert "the GKE cluster test-project/us-central1-a/demo" in str(cluster.identity)
    assert len(google.requests) == len(google.identity.issued) == 1


@pytest.mark.parametrize("lost", ["address", "certificate"])
def test_a_cluster_that_moved_is_looked_up_again(
    google: Any, bed: Any, namespace: str, lost: str
) -> None:
    before = (
        {"server": "https://127.0.0.1:1"} if lost == "address" else {"ca": authority_of(google)}
    )
    add(google, bed, **before)
    api = GkeApi(google.endpoint)
    cluster = ApiServer(api.cluster(*PLACE).access(namespace), pause=lambda _: None)
    add(google, bed)

    assert cluster.get("Namespace", namespace) is not None
    assert cluster.identity.server == bed.environment["KUBE_BED_SERVER"]
    assert len(google.requests) == 2


def authority_of(gke: Any) -> str:
    return str(gke.authority.file.read_text())


def test_a_token_is_renewed_before_it_expires_and_used_as_long_as_it_is_accepted(
    google: Any, namespace: str
) -> None:
    clock = Clock()
    access = GkeApi(google.endpoint).cluster(*PLACE).access(namespace)
    cluster = ApiServer(access, connection=Connection(access, now=clock))
    issued = google.identity.issued
    cluster.get("Job", "none")
    cluster.get("Job", "none")
    assert len(issued) == 1

    clock.passed = timedelta(minutes=55)
    cluster.get("Job", "none")
    assert len(issued) == 1
    clock.passed = timedelta(minutes=57)
    cluster.get("Job", "none")
    assert len(issued) == 2, "less than four minutes are left"

    clock.passed = timedelta(minutes=120)
    google.identity.revoke()
    assert cluster.get("Job", "none") is None, "the server decides"


@pytest.fixture
def expiring(google: Any, relayed_access: Access) -> tuple[ApiServer, Clock]:
    """The cluster, whose credentials are Google's, through the relay."""
    clock = Clock()
    access = replace(relayed_access, credentials=GoogleCredentials())
    return ApiServer(access, connection=Connection(access, now=clock)), clock


def test_after_a_login_the_next_request_succeeds(
    google: Any, relay: Any, expiring: tuple[ApiServer, Clock]
) -> None:
    cluster, clock = expiring
    assert cluster.get("Job", "none") is None
    google.identity.revoke()
    relay.fail("GET", 401, "Unauthorized", times=99)

    for _ in range(5):
        with pytest.raises(NotAuthenticatedError, match="expired or were revoked") as caught:
            cluster.get("Job", "none")
        assert caught.value.hint == "Log in with: gcloud auth application-default login"
    relay.faults.clear()
    relay.fail("GET", 401, "Unauthorized")
    google.identity.log_in()
    clock.passed = timedelta(seconds=30)

    assert cluster.get("Job", "none") is None


def test_a_watch_survives_an_expired_login(
    google: Any, cluster: ApiServer, relay: Any, expiring: tuple[ApiServer, Clock]
) -> None:
    relayed, clock = expiring
    watched = [Watched(kind="ConfigMap", labels="test=login")]
    with Watch(relayed, watched) as watch:
        watch.wait(60)
        google.identity.revoke()
        relay.fail("watch=true", 401, "Unauthorized", times=2)
        relay.cut()
        google.identity.log_in()
        clock.passed = timedelta(seconds=60)
        metadata = {"name": "login", "labels": {"test": "login"}}
        cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
        assert watch.wait(60)


@pytest.fixture
def account(bed: Any, namespace: str, tmp_path: Path) -> Callable[[], Path]:
    """Return what writes the files of a pod's service account, with a new token."""

    def write() -> Path:
        token = bed.kubectl("create", "token", "default", "-n", namespace)
        for name, text in (("token", token), ("namespace", namespace), ("ca.crt", ca_of(bed))):
            (tmp_path / name).write_text(text)
        return tmp_path

    return write


def pod_variables(bed: Any) -> dict[str, str]:
    host, _, port = bed.environment["KUBE_BED_SERVER"].removeprefix("https://").partition(":")
    return {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}


def test_a_pod_reaches_its_own_cluster_as_its_service_account(
    bed: Any, namespace: str, account: Callable[[], Path]
) -> None:
    access = access_in_pod(pod_variables(bed), account=account())
    cluster = ApiServer(access)

    with pytest.raises(NotPermittedError) as caught:
        cluster.list("Job")

    assert f"system:serviceaccount:{namespace}:default" in caught.value.message
    binding = ("rolebinding", "pod-edits", "-n", namespace)
    bed.kubectl("create", *binding, "--clusterrole=edit", f"--serviceaccount={namespace}:default")
    nothing = "kinetic.dev/job-id=nothing"
    assert cluster.list("Job", labels=nothing) == []
    account()  # The kubelet replaces the token.
    assert cluster.list("Job", labels=nothing) == []
    with pytest.raises(UnknownClusterError, match="KUBERNETES_SERVICE_HOST"):
        connect_in_pod({})
