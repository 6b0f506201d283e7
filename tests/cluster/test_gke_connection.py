"""Clusters found by their name on GKE: the API server is real, and GKE is ours."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kinetic_k8s.cluster.client import ApiServer
from kinetic_k8s.cluster.connection import Access, Connection
from kinetic_k8s.cluster.gke import GkeApi
from kinetic_k8s.errors import NotAuthenticatedError

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
    credentials = GkeApi(google.endpoint).cluster(*PLACE).access("default").credentials
    access = replace(relayed_access, credentials=credentials)
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
