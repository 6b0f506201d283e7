"""The servers of all Google APIs: everything in one go, and what tests can make them do."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import grpc
import pytest
import requests
from google.api_core import exceptions
from google.auth.exceptions import InvalidOperation
from google.cloud import container_v1

from kinetic_servers.google import GoogleCloud

P = "projects/my-project"
L = f"{P}/locations/us-central1"
# The client of buckets has no credentials, with an emulator, and so cannot make new ones after a refusal.
REFUSED = (exceptions.Unauthorized, InvalidOperation)
NETWORK = {"name": "n", "autoCreateSubnetworks": False}


def test_everything_can_be_made_and_removed(cloud: GoogleCloud, clients: Any) -> None:
    before = cloud.resources()
    services = {"parent": P, "service_ids": ["tpu.googleapis.com"]}
    clients.usage.batch_enable_services(request=services).result(timeout=20)
    clients.network()
    account = clients.account()
    clients.bind(f"serviceAccount:{account.email}")
    made = clients.repository().result(timeout=20)
    assert made.registry_uri == "us-central1-docker.pkg.dev/my-project/kinetic"
    assert clients.ended(clients.cluster()).status.name == "DONE"
    found = clients.gke.get_cluster(name=f"{L}/clusters/c")
    assert (found.status.name, found.endpoint) == ("RUNNING", "203.0.113.7:8443")
    pool = "my-project.svc.id.goog"
    subject = f"workloadIdentityPools/{pool}/subject/ns/default/sa/runner"
    clients.bind(f"principal://iam.googleapis.com/projects/123456789012/locations/global/{subject}")
    bucket = clients.bucket()
    bucket.blob("o").upload_from_string(b"data")
    assert set(before) < set(cloud.resources())

    for blob in bucket.list_blobs():
        blob.delete()
    bucket.delete()
    clients.ended(clients.gke.delete_cluster(name=f"{L}/clusters/c"))
    clients.registry.delete_repository(name=made.name).result(timeout=20)
    clients.iam.delete_service_account(name=account.name)
    clients.done("DELETE", "regions/us-central1/subnetworks/n")
    clients.done("DELETE", "global/networks/n")
    left = "resourcemanager/bindings/roles/logging.logWriter/"
    assert [each.removeprefix(left) for each in cloud.resources() if each not in before] == [
        f"deleted:serviceAccount:{account.email}?uid={account.unique_id}",
        f"principal://iam.googleapis.com/projects/123456789012/locations/global/{subject}",
        "serviceusage/services/tpu.googleapis.com",
    ]
    assert cloud.changes == [
        f"BatchEnableServices {P}",
        f"POST {P}/global/networks",
        f"POST {P}/regions/us-central1/subnetworks",
        f"CreateServiceAccount {P}",
        f"SetIamPolicy {P}",
        f"CreateRepository {L}",
        f"CreateCluster {L}",
        f"SetIamPolicy {P}",
        "buckets.insert my-bucket",
        "objects.insert my-bucket/o",
        "objects.delete my-bucket/o",
        "buckets.delete my-bucket",
        f"DeleteCluster {L}/clusters/c",
        f"DeleteRepository {L}/repositories/kinetic",
        f"DeleteServiceAccount {account.name}",
        f"DELETE {P}/regions/us-central1/subnetworks/n",
        f"DELETE {P}/global/networks/n",
    ]


# --- The end of a client


CHANGES: dict[str, Callable[[Any], object]] = {
    "iam/serviceAccounts/worker@my-project.iam.gserviceaccount.com": lambda clients: (
        clients.account()
    ),
    "compute/networks/n": lambda clients: clients.compute("POST", "global/networks", **NETWORK),
    "storage/buckets/my-bucket": lambda clients: clients.bucket(),
}


@pytest.mark.parametrize("last", CHANGES)
def test_a_client_dies_with_its_last_change_whatever_it_is(
    cloud: GoogleCloud, clients: Any, last: str
) -> None:
    cloud.dies_after(len(CHANGES))
    order = [*(each for each in CHANGES if each != last), last]
    for each in order[:-1]:
        CHANGES[each](clients)

    with pytest.raises((*REFUSED, AssertionError)):
        CHANGES[last](clients)
    count = len(cloud.requests)
    for act in (
        lambda: clients.account("another"),
        lambda: clients.bucket("another"),
        lambda: clients.iam.get_service_account(name=f"{P}/serviceAccounts/w"),
    ):
        with pytest.raises(REFUSED):
            act()
    clients.compute("GET", "global/networks", status=401)
    cloud.revive()
    assert set(CHANGES) < set(cloud.resources())
    assert len(cloud.changes) == len(CHANGES)
    assert len(cloud.requests) < count + 12, "nothing is repeated for long"
    clients.account("another")


def test_changes_at_the_same_time_are_counted_together(cloud: GoogleCloud, clients: Any) -> None:
    clients.account("warm-up"), clients.compute("GET", "zones"), clients.bucket("warm-up")
    before = len(cloud.changes)
    cloud.dies_after(4)

    def act(number: int) -> None:
        with suppress(*REFUSED, AssertionError):
            if number % 3 == 0:
                clients.account(f"worker-{number}")
            elif number % 3 == 1:
                clients.bucket(f"my-bucket-{number}")
            else:
                body = {"name": f"n-{number}", "autoCreateSubnetworks": False}
                clients.compute("POST", "global/networks", **body)

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(act, range(12)))
    assert len(cloud.changes) == before + 4
    kinds = ("iam/", "compute/", "storage/")
    assert len([each for each in cloud.resources() if each.startswith(kinds)]) == 2 + 4


def test_the_hook_runs_after_a_change_and_before_its_answer(
    cloud: GoogleCloud, clients: Any
) -> None:
    seen = []

    def hook(change: str) -> None:
        # Other calls are answered meanwhile.
        found = clients.compute("GET", "global/networks")
        accounts = [each for each in cloud.resources() if each.startswith("iam/")]
        seen.append((change, len(found.get("items", ())), len(accounts)))

    cloud.hook = hook
    clients.account()
    clients.compute("POST", "global/networks", **NETWORK)
    clients.compute("GET", "global/networks/n")
    assert seen == [(f"CreateServiceAccount {P}", 0, 1), (f"POST {P}/global/networks", 1, 1)]


# --- Permissions, APIs, projects


def permission_of(error: exceptions.GoogleAPICallError) -> Any:
    assert (error.reason, error.domain) == ("IAM_PERMISSION_DENIED", "iam.googleapis.com")
    return error.metadata


@pytest.mark.parametrize(
    ("permission", "resource", "act"),
    [
        ("serviceusage.services.enable", f"//serviceusage.googleapis.com/{P}", lambda c: c.usage.batch_enable_services(request={"parent": P, "service_ids": ["tpu.googleapis.com"]})),
        ("resourcemanager.projects.setIamPolicy", f"//cloudresourcemanager.googleapis.com/{P}", lambda c: c.bind("user:a@b.test")),
        ("iam.serviceAccounts.create", f"//iam.googleapis.com/{P}", lambda c: c.account()),
        ("artifactregistry.repositories.create", f"//artifactregistry.googleapis.com/{L}", lambda c: c.repository()),
        ("container.clusters.get", f"//container.googleapis.com/{L}/clusters/c", lambda c: c.gke.get_cluster(name=f"{L}/clusters/c")),
    ],
)  # fmt: skip
def test_a_missing_permission_is_named(
    cloud: GoogleCloud, clients: Any, permission: str, resource: str, act: Callable[[Any], object]
) -> None:
    cloud.deny(permission)
    with pytest.raises(exceptions.PermissionDenied, match=f"Permission '{permission}' denied") as e:
        act(clients)
    assert permission_of(e.value) == {"permission": permission, "resource": resource}
    asked = [permission, "container.clusters.create"]
    held = clients.projects.test_iam_permissions(resource=P, permissions=asked).permissions
    assert held == ["container.clusters.create"]
    cloud.allow_all()
    held = clients.projects.test_iam_permissions(resource=P, permissions=asked).permissions
    assert held == asked
    assert cloud.changes == []


def test_compute_and_buckets_name_a_missing_permission_in_their_own_words(
    cloud: GoogleCloud, clients: Any
) -> None:
    cloud.deny("compute.networks.create", "storage.buckets.create")
    error = clients.compute("POST", "global/networks", status=403, **NETWORK)["error"]
    resource = f"{P}/global/networks/n"
    assert error["message"] == f"Required 'compute.networks.create' permission for '{resource}'"
    assert error["details"][0]["metadata"]["permission"] == "compute.networks.create"
    with pytest.raises(exceptions.Forbidden, match=r"storage\.buckets\.create"):
        clients.bucket()


def test_an_api_that_is_not_enabled_is_refused_until_its_operation_has_ended(
    cloud: GoogleCloud, clients: Any
) -> None:
    cloud.add_project("fresh", number=77, apis=["iam.googleapis.com"])
    at = "projects/fresh/locations/us-central1"
    words = "Kubernetes Engine API has not been used in project 77 before or it is disabled"
    services = ["compute.googleapis.com", "container.googleapis.com"]
    request = {"parent": "projects/fresh", "service_ids": services}
    cloud.lag = 2

    operation = clients.usage.batch_enable_services(request=request)
    for asked in range(4):
        with pytest.raises(exceptions.PermissionDenied, match=words) as error:
            clients.gke.list_clusters(parent=at)
        assert error.value.reason == "SERVICE_DISABLED"
        assert error.value.metadata["service"] == "container.googleapis.com"
        if asked == 1:
            operation.result(timeout=20)
    clients.gke.list_clusters(parent=at)
    place = f"../{at.split('/')[1]}/global/networks"
    for status in (403, 403, 200):
        answer = clients.compute("GET", place, status=status)
    assert answer["kind"] == "compute#networkList"


def test_projects_that_are_unknown_or_deleted(cloud: GoogleCloud, clients: Any) -> None:
    with pytest.raises(exceptions.PermissionDenied) as error:
        clients.projects.get_project(name="projects/strange")
    assert permission_of(error.value)["permission"] == "resourcemanager.projects.get"
    assert clients.projects.get_project(name="projects/123456789012").project_id == "my-project"
    cloud.delete_project("my-project")
    assert clients.projects.get_project(name=P).state.name == "DELETE_REQUESTED"
    with pytest.raises(exceptions.PermissionDenied, match="has been deleted"):
        clients.account()


def test_a_call_without_a_token_is_refused(cloud: GoogleCloud) -> None:
    url = f"{cloud.compute.endpoint}/compute/v1/{P}/global/networks"
    assert requests.get(url, timeout=9).status_code == 401
    assert requests.get(url, headers={"Authorization": "Bearer x"}, timeout=9).status_code == 401


# --- Faults


def test_the_next_calls_fail_before_or_after_their_effect(cloud: GoogleCloud, clients: Any) -> None:
    cloud.fail("CreateServiceAccount", grpc.StatusCode.UNAVAILABLE, "busy", times=2)
    cloud.fail("IAM/GetIamPolicy", grpc.StatusCode.INTERNAL)
    cloud.fail("networks.insert", 403, "Quota exceeded.", reason="quotaExceeded")
    cloud.fail("buckets.insert", 503, after=True)
    for _ in range(2):
        with pytest.raises(exceptions.ServiceUnavailable, match="busy"):
            clients.account()
    clients.bind("user:a@b.test")  # A method of the same name in another service.
    error = clients.compute("POST", "global/networks", status=403, **NETWORK)["error"]
    assert error["errors"][0]["reason"] == "quotaExceeded"
    cloud.compute.faults.add(operation="networks.insert", reset="after", times=1)
    with pytest.raises(requests.ConnectionError):
        clients.compute("POST", "global/networks", **NETWORK)
    clients.compute("POST", "global/networks", status=409, **NETWORK)
    with pytest.raises(exceptions.ServiceUnavailable):
        clients.storage.create_bucket("my-bucket", retry=None)
    assert "storage/buckets/my-bucket" in cloud.resources()
    assert [each.partition(" ")[0] for each in cloud.changes] == [
        "SetIamPolicy",
        "POST",
        "buckets.insert",
    ]


@pytest.mark.parametrize(
    ("method", "act"),
    [
        ("CreateCluster", lambda c: c.cluster()),
        ("CreateRepository", lambda c: c.repository()),
        ("networks.insert", lambda c: c.compute("POST", "global/networks", **{**NETWORK, "name": "m"})),
        ("BatchEnableServices", lambda c: c.usage.batch_enable_services(request={"parent": P, "service_ids": ["tpu.googleapis.com"]})),
    ],
)  # fmt: skip
def test_an_operation_ends_with_an_error_after_its_polls(
    cloud: GoogleCloud, clients: Any, method: str, act: Callable[[Any], Any]
) -> None:
    clients.network()
    before = cloud.resources()
    cloud.polls = 3
    cloud.fail_operation(method, "stockout")

    operation = act(clients)

    if method == "CreateCluster":
        seen = [clients.ended(operation) for _ in range(3)]
        assert [each.status.name for each in seen] == ["RUNNING", "RUNNING", "DONE"]
        assert seen[-1].error.message == "stockout"
        cluster = clients.gke.get_cluster(name=f"{L}/clusters/c")
        assert (cluster.status.name, cluster.status_message) == ("ERROR", "stockout")
        clients.ended(clients.gke.delete_cluster(name=f"{L}/clusters/c"))
        return
    if method == "networks.insert":
        place = f"global/operations/{operation['name']}"
        for status in ("RUNNING", "RUNNING", "DONE"):
            shown = clients.compute("GET", place)
            assert shown["status"] == status
        assert shown["error"]["errors"] == [{"code": "INTERNAL", "message": "stockout"}]
    else:
        with pytest.raises(exceptions.GoogleAPICallError, match="stockout"):
            operation.result(timeout=30)
    assert cloud.resources() == before


# --- Unknown fields


def test_unknown_fields_are_refused(cloud: GoogleCloud, clients: Any) -> None:
    request = container_v1.CreateClusterRequest(parent=L, cluster={"name": "c"})
    inner = type(request).pb(request).cluster.autopilot
    inner.MergeFromString(b"\xfa\x3f\x01x")  # Field 1023, text.
    with pytest.raises(exceptions.InvalidArgument, match=r"number 1023 of google.*\.Autopilot"):
        clients.gke.create_cluster(request=request)
    for body, words in (
        ({"labels": {}}, 'Unknown name "labels": Cannot find field.'),
        ({"routingConfig": {"mode": "x"}}, "Unknown name \"mode\" at 'routingConfig': Cannot find"),
    ):
        error = clients.compute("POST", "global/networks", status=400, **NETWORK, **body)["error"]
        assert words in error["message"]
    url = f"{cloud.buckets.endpoint}/storage/v1/b?project=my-project"
    answer = requests.post(url, json={"name": "my-bucket", "lifecycle": {"rules": []}}, timeout=9)
    assert (answer.status_code, cloud.changes) == (400, [])
    assert (
        "Unknown name \"rules\" at 'lifecycle': Cannot find field."
        in answer.json()["error"]["message"]
    )


def test_resources_are_those_of_one_project_or_of_all(cloud: GoogleCloud) -> None:
    cloud.add_project("other", number=78, default_network=True)
    cloud.add_disk("other", "us-central1-a", "pvc-1", cluster="c")
    assert "compute/disks/us-central1-a/pvc-1" in cloud.resources("other")
    assert cloud.resources() == sorted(cloud.resources("other") + cloud.resources("my-project"))
