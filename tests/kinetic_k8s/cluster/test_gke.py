"""Clusters found through Google's real client, at a GKE API that runs here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.cloud import container_v1

from kinetic_k8s.cluster.gke import GkeApi, GkeCluster, cluster_of
from kinetic_k8s.errors import (
    ClusterUnreachableError,
    InvalidRequestError,
    NotAuthenticatedError,
    NotPermittedError,
    ServiceDisabledError,
    UnknownClusterError,
)
from kinetic_servers.gke import GkeServer

PEM = "-----BEGIN CERTIFICATE-----\n"


@pytest.fixture
def api(gke: GkeServer) -> GkeApi:
    return GkeApi(gke.endpoint)


def find(api: GkeApi, name: str = "demo", *, location: str = "us-central1-a") -> GkeCluster:
    return api.cluster("test-project", location, name)


def described(**fields: Any) -> GkeCluster:
    def look_up(limit: float) -> GkeCluster:
        raise AssertionError("it is known")

    return cluster_of(container_v1.Cluster(name="demo", **fields), "p", None, look_up)


def test_a_cluster_is_found_by_its_name_once_with_its_address_and_a_token(
    gke: GkeServer, api: GkeApi
) -> None:
    gke.add("demo", server="https://10.0.0.1:6443", ca=PEM)

    found = find(api)
    access = found.access("team")

    assert (access.server, access.ca, access.namespace) == ("https://10.0.0.1:6443", PEM, "team")
    assert access.title == "the GKE cluster test-project/us-central1-a/demo"
    credentials = access.credentials()
    assert credentials.headers == {"Authorization": f"Bearer {gke.identity.issued[-1]}"}
    assert credentials.renew_at is not None
    assert len(gke.identity.issued) == 1, "the look-up's token is used"
    assert find(api) is found
    assert gke.requests == [
        "GetCluster projects/test-project/locations/us-central1-a/clusters/demo"
    ]
    gke.add("demo", server="https://10.0.0.2", ca=PEM)
    assert found.look_up(5).server == "https://10.0.0.2:443", "a look-up asks again"
    assert find(api).server == "https://10.0.0.2:443"


@pytest.mark.parametrize(
    ("name", "location", "hint"),
    [
        ("demo", "us-central1-a", "is in us-east1-b: set the zone to that, for instance with KINETIC_ZONE="),
        ("other", "us-east1-b", "has these clusters: 'demo' in us-east1-b, 'prod' in us-west1."),
    ],
)  # fmt: skip
def test_a_cluster_that_does_not_exist_is_reported_with_those_that_do(
    gke: GkeServer, api: GkeApi, name: str, location: str, hint: str
) -> None:
    gke.add("demo", location="us-east1-b", server="https://10.0.0.1", ca=PEM)
    gke.add("prod", location="us-west1", server="https://10.0.0.2", ca=PEM)
    gke.add("elsewhere", project="another", server="https://10.0.0.3", ca=PEM)

    with pytest.raises(UnknownClusterError) as caught:
        find(api, name, location=location)

    assert f"no GKE cluster {name!r} in {location} of the project" in caught.value.message
    assert hint in (caught.value.hint or "")


def test_a_project_without_clusters_is_named_as_such(api: GkeApi) -> None:
    with pytest.raises(UnknownClusterError) as caught:
        find(api)
    assert "The project has no clusters" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("code", "reason", "error", "hint"),
    [
        ("PERMISSION_DENIED", "IAM_PERMISSION_DENIED", NotPermittedError, "roles/container.clusterViewer"),
        ("PERMISSION_DENIED", "SERVICE_DISABLED", ServiceDisabledError, "gcloud services enable container"),
        ("INVALID_ARGUMENT", "", InvalidRequestError, "Check the project"),
        ("UNAUTHENTICATED", "", NotAuthenticatedError, "gcloud auth application-default login"),
        ("RESOURCE_EXHAUSTED", "", ClusterUnreachableError, "Try again later"),
    ],
)  # fmt: skip
def test_a_refusal_of_the_api_is_translated(
    gke: GkeServer, api: GkeApi, code: str, reason: str, error: type[Exception], hint: str
) -> None:
    gke.fail("GetCluster", grpc.StatusCode[code], "the API's own words", reason=reason)

    with pytest.raises(error, match="the API's own words") as caught:
        find(api)

    assert hint in str(caught.value)


def test_a_brief_outage_of_the_api_is_retried(gke: GkeServer, api: GkeApi) -> None:
    gke.add("demo", server="https://10.0.0.1", ca=PEM)
    gke.fail("GetCluster", grpc.StatusCode.UNAVAILABLE, times=2)

    assert find(api).server
    assert len(gke.requests) == 3


def test_a_key_that_was_revoked_needs_a_login_and_the_next_call_uses_it(
    gke: GkeServer, api: GkeApi
) -> None:
    gke.add("demo", server="https://10.0.0.1", ca=PEM)
    gke.identity.revoke()

    with pytest.raises(NotAuthenticatedError, match="expired or were revoked") as caught:
        find(api)
    assert caught.value.hint == "Log in with: gcloud auth application-default login"

    gke.identity.log_in()
    assert find(api).server


def test_a_refusal_for_another_reason_is_quoted_and_not_called_expired(
    gke: GkeServer, api: GkeApi
) -> None:
    gke.identity.revoke()
    gke.identity.refusal = {"error": "invalid_scope", "error_description": "Bad Request"}

    with pytest.raises(NotAuthenticatedError, match="invalid_scope: Bad Request") as caught:
        find(api)
    assert "expired" not in caught.value.message
    assert "without --scopes: gcloud auth application-default" in (caught.value.hint or "")

    gke.identity.refusal = {"error": "unauthorized_client", "error_description": "Not allowed."}
    with pytest.raises(NotAuthenticatedError, match="could not be used: unauthorized_client"):
        find(api)


def test_without_credentials_the_login_is_named(
    api: GkeApi, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))

    with pytest.raises(NotAuthenticatedError, match=r"none\.json was not found") as caught:
        find(api)
    assert "gcloud auth application-default login" in (caught.value.hint or "")


def test_a_cluster_that_is_being_created_has_no_address(gke: GkeServer, api: GkeApi) -> None:
    gke.add("demo")

    with pytest.raises(ClusterUnreachableError, match="its status is PROVISIONING"):
        find(api)


DNS = {"endpoint": "gke-1.us-central1.gke.goog", "allow_external_traffic": True}


@pytest.mark.parametrize(
    ("fields", "server"),
    [
        ({"endpoint": "10.0.0.1"}, "https://10.0.0.1:443"),
        ({"endpoint": "10.0.0.1:6443"}, "https://10.0.0.1:6443"),
        ({"endpoint": "2001:db8::1"}, "https://[2001:db8::1]:443"),
        (
            {"endpoint": "10.0.0.1", "control_plane_endpoints_config": {
                "dns_endpoint_config": DNS, "ip_endpoints_config": {"enable_public_endpoint": True}}},
            "https://10.0.0.1:443",
        ),
        (
            {"endpoint": "10.0.0.1", "control_plane_endpoints_config": {
                "dns_endpoint_config": DNS, "ip_endpoints_config": {"enable_public_endpoint": False}}},
            "https://gke-1.us-central1.gke.goog",
        ),
        (
            {"endpoint": "10.0.0.1", "master_authorized_networks_config": {"enabled": True},
             "control_plane_endpoints_config": {"dns_endpoint_config": DNS}},
            "https://gke-1.us-central1.gke.goog",
        ),
        (
            {"endpoint": "10.0.0.1", "private_cluster_config": {"enable_private_endpoint": True}},
            "https://10.0.0.1:443",
        ),
    ],
)  # fmt: skip
def test_the_address_is_one_that_can_be_reached(fields: dict[str, Any], server: str) -> None:
    ca = {"cluster_ca_certificate": "LS0t"}

    found = described(master_auth=ca, **fields)

    assert found.server == server
    assert (found.ca is None) == ("gke.goog" in server), "the DNS endpoint has a public certificate"


def test_pools_and_add_ons_are_read(gke: GkeServer, api: GkeApi) -> None:
    gke.add(
        "demo",
        server="https://10.0.0.1",
        ca=PEM,
        locations=["us-central1-a", "us-central1-b"],
        addons_config={"gcs_fuse_csi_driver_config": {"enabled": True}},
        autoscaling={
            "enable_node_autoprovisioning": True,
            "default_compute_class_config": {"enabled": True},
        },
        node_pools=[
            {
                "name": "l4",
                "config": {
                    "machine_type": "g2-standard-4",
                    "spot": True,
                    "accelerators": [{"accelerator_type": "nvidia-l4", "accelerator_count": 1}],
                    "taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NO_SCHEDULE"}],
                },
                "autoscaling": {"enabled": True, "min_node_count": 0, "max_node_count": 3},
            },
            {
                "name": "slice",
                "locations": ["us-central1-b"],
                "initial_node_count": 4,
                "config": {"machine_type": "ct6e-standard-4t"},
                "placement_policy": {"tpu_topology": "4x4"},
            },
            {
                "name": "old",
                "config": {"machine_type": "tpu7x-standard-4t", "preemptible": True},
                "placement_policy": {"policy_name": "slices"},
            },
        ],
    )  # fmt: skip

    found = find(api)
    gpus, tpus, old = found.pools

    assert (found.fuse, found.autoprovisioning, found.compute_classes) == (True, True, True)
    assert str(gpus) == "l4 (g2-standard-4, 1 × nvidia-l4, spot)"
    assert gpus.max_nodes == 6, "numbers are of each zone"
    assert gpus.taints == (("nvidia.com/gpu", "present", "NoSchedule"),)
    assert (tpus.tpu_topology, tpus.max_nodes) == ("4x4", None)
    assert (old.spot, old.tpu_topology, old.placement_policy) == (False, "", "slices")


def test_connecting_by_a_context_loads_no_library_of_google() -> None:
    program = (
        "import sys, kinetic_k8s.cluster.connect\n"
        "heavy = {name.partition('.')[0] for name in sys.modules}\n"
        "sys.exit(bool(heavy & {'google', 'grpc', 'kubernetes', 'requests'}))"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
