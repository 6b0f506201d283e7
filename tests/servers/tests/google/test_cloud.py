"""The servers of all Google APIs, with Google's own clients: one life of everything, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import google.auth
import grpc
import pytest
import requests
from google.api_core import exceptions
from google.auth.exceptions import InvalidOperation
from google.auth.transport.requests import AuthorizedSession
from google.cloud import (
    artifactregistry_v1,
    container_v1,
    iam_admin_v1,
    resourcemanager_v3,
    storage,
)
from google.cloud import service_usage_v1 as usage
from google.iam.v1 import policy_pb2

from kinetic_servers.google import GoogleCloud

APIS = ("artifactregistry", "cloudresourcemanager", "compute", "container", "iam")
P = "projects/my-project"
L = f"{P}/locations/us-central1"
EMAIL = "worker@my-project.iam.gserviceaccount.com"
POOL = "//iam.googleapis.com/projects/123456789012/locations/global/workloadIdentityPools/my-project.svc.id.goog"
SUBJECT = f"principal:{POOL}/subject/ns/default/sa/runner"
NETWORK = {"name": "n", "autoCreateSubnetworks": False}
SUBNETWORK = {"name": "n", "network": f"{P}/global/networks/n", "ipCidrRange": "10.0.0.0/20"}
SUBNETWORKS = "regions/us-central1/subnetworks"
# The client of buckets has no credentials, with an emulator, and so cannot make new ones after a refusal.
REFUSED = (exceptions.Unauthorized, InvalidOperation)


@dataclass
class Clients:
    """The clients, and the calls that most tests need."""

    cloud: GoogleCloud
    made: dict[Any, Any] = field(default_factory=dict)

    def of(self, kind: Any) -> Any:
        options = {"api_endpoint": self.cloud.grpc.endpoint}
        return self.made.get(kind) or self.made.setdefault(kind, kind(client_options=options))

    @property
    def gke(self) -> Any:
        return self.of(container_v1.ClusterManagerClient)

    @cached_property
    def storage(self) -> storage.Client:
        return storage.Client("my-project")

    @cached_property
    def session(self) -> AuthorizedSession:
        scope = "https://www.googleapis.com/auth/cloud-platform"
        return AuthorizedSession(google.auth.default([scope])[0])

    def compute(self, method: str, path: str, *, status: int = 200, **body: Any) -> Any:
        """Call Compute."""
        url = f"{self.cloud.compute.endpoint}/compute/v1/{P}/{path}"
        answer = self.session.request(method, url, json=body or None)
        assert answer.status_code == status, answer.text
        return answer.json()

    def done(self, method: str, path: str, **body: Any) -> Any:
        """Call Compute, and poll the operation once."""
        link = self.compute(method, path, **body)["selfLink"]
        return self.compute("GET", link.partition(f"{P}/")[2])

    def network(self) -> None:
        self.done("POST", "global/networks", **NETWORK)
        self.done("POST", SUBNETWORKS, **SUBNETWORK)

    def cluster(self, **fields: Any) -> Any:
        """Make an Autopilot cluster in the network `n`."""
        made = {"name": "c", "network": "n", "subnetwork": "n", "autopilot": {"enabled": True}}
        return self.gke.create_cluster(parent=L, cluster={**made, **fields})

    def ended(self, operation: Any) -> Any:
        """Poll an operation of GKE once."""
        return self.gke.get_operation(name=f"{L}/operations/{operation.name}")

    def account(self, name: str = "worker") -> Any:
        request = {"name": P, "account_id": name}
        return self.of(iam_admin_v1.IAMClient).create_service_account(request=request)

    def repository(self, name: str = "kinetic", **fields: Any) -> Any:
        made = {"format_": "DOCKER", **fields}
        client = self.of(artifactregistry_v1.ArtifactRegistryClient)
        return client.create_repository(parent=L, repository=made, repository_id=name)

    def bucket(self, name: str = "my-bucket") -> storage.Bucket:
        made = self.storage.bucket(name)
        made.iam_configuration.uniform_bucket_level_access_enabled = True
        made.create(location="us-central1")
        return made

    def enable(self, *services: str, project: str = P) -> Any:
        hosts = [f"{each}.googleapis.com" for each in services]
        request = {"parent": project, "service_ids": hosts}
        return self.of(usage.ServiceUsageClient).batch_enable_services(request=request)

    def bind(self, member: str, role: str = "roles/logging.logWriter", policy: Any = None) -> Any:
        """Add a binding to the project's policy, or to an earlier state of it."""
        projects = self.of(resourcemanager_v3.ProjectsClient)
        policy = policy or projects.get_iam_policy(resource=P)
        old = policy_pb2.Policy.FromString(policy.SerializeToString())
        policy.bindings.add(role=role, members=[member])
        projects.set_iam_policy(request={"resource": P, "policy": policy})
        return old


@pytest.fixture
def cloud(authority: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GoogleCloud]:
    """Run all APIs, with a project in which they are enabled."""
    server = ("https://203.0.113.7:8443", "-----BEGIN CERTIFICATE-----\n")
    with GoogleCloud(tmp_path, authority=authority, api_server=lambda _: server) as running:
        running.add_project("my-project", number=123456789012, apis=APIS)
        for name, value in running.environment.items():
            monkeypatch.setenv(name, value)
        yield running


@pytest.fixture
def clients(cloud: GoogleCloud) -> Clients:
    return Clients(cloud)


def test_everything_can_be_made_and_removed(cloud: GoogleCloud, clients: Any) -> None:
    before = cloud.resources()
    clients.enable("tpu").result(timeout=20)
    clients.network()
    account = clients.account()
    clients.bind(f"serviceAccount:{EMAIL}")
    made = clients.repository().result(timeout=20)
    assert clients.ended(clients.cluster()).status.name == "DONE"
    found = clients.gke.get_cluster(name=f"{L}/clusters/c")
    assert (found.status.name, found.endpoint) == ("RUNNING", "203.0.113.7:8443")
    clients.bind(SUBJECT)
    bucket = clients.bucket()
    bucket.blob("o").upload_from_string(b"data")
    assert set(before) < set(cloud.resources())

    for blob in bucket.list_blobs():
        blob.delete()
    bucket.delete()
    clients.ended(clients.gke.delete_cluster(name=f"{L}/clusters/c"))
    clients.of(artifactregistry_v1.ArtifactRegistryClient).delete_repository(name=made.name)
    clients.of(iam_admin_v1.IAMClient).delete_service_account(name=account.name)
    clients.done("DELETE", f"{SUBNETWORKS}/n")
    error = clients.compute("DELETE", "global/networks/n", status=400)["error"]
    assert f"is already being used by '{P}/global/firewalls/gke-c-" in error["message"]
    rules = clients.compute("GET", 'global/firewalls?filter=network eq ".*/networks/n"')["items"]
    for each in rules:
        clients.done("DELETE", f"global/firewalls/{each['name']}")
    clients.done("DELETE", "global/networks/n")
    cloud.revive()
    left = "resourcemanager/bindings/roles/logging.logWriter/"
    assert [each.removeprefix(left) for each in cloud.resources() if each not in before] == [
        f"deleted:serviceAccount:{EMAIL}?uid={account.unique_id}",
        SUBJECT,
        "serviceusage/services/tpu.googleapis.com",
    ]
    assert clients.account().unique_id != account.unique_id
    assert cloud.changes[3:13] == [
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
    ]


CHANGES: dict[str, Callable[[Any], object]] = {
    f"iam/serviceAccounts/{EMAIL}": lambda clients: clients.account(),
    "compute/networks/n": lambda clients: clients.compute("POST", "global/networks", **NETWORK),
    "storage/buckets/my-bucket": lambda clients: clients.bucket(),
}


@pytest.mark.parametrize("last", CHANGES)
def test_a_client_dies_with_its_last_change_whatever_it_is(
    cloud: GoogleCloud, clients: Any, last: str
) -> None:
    seen = list[str]()
    cloud.hook = seen.append
    cloud.dies_after(len(CHANGES))
    order = [*(each for each in CHANGES if each != last), last]
    for each in order[:-1]:
        CHANGES[each](clients)

    with pytest.raises((*REFUSED, AssertionError)):
        CHANGES[last](clients)
    for act in (lambda: clients.account("another"), lambda: clients.bucket("another")):
        with pytest.raises(REFUSED):
            act()
    clients.compute("GET", "zones", status=401)
    cloud.revive()
    assert set(CHANGES) < set(cloud.resources())
    assert cloud.changes == seen
    assert len(seen) == len(CHANGES)
    clients.account("another")


def test_calls_without_a_permission_an_api_or_a_token_are_refused(
    cloud: GoogleCloud, clients: Any
) -> None:
    cloud.deny("iam.serviceAccounts.create", "compute.networks.create", "storage.buckets.create")
    with pytest.raises(exceptions.PermissionDenied, match=r"Accounts\.create' denied") as e:
        clients.account()
    assert (e.value.reason, e.value.domain) == ("IAM_PERMISSION_DENIED", "iam.googleapis.com")
    error = clients.compute("POST", "global/networks", status=403, **NETWORK)["error"]
    named = f"Required 'compute.networks.create' permission for '{P}/global/networks/n'"
    assert error["message"] == named
    assert error["details"][0]["metadata"]["permission"] == "compute.networks.create"
    with pytest.raises(exceptions.Forbidden, match=r"storage\.buckets\.create"):
        clients.bucket()
    cloud.allow_all()

    cloud.lag = 1
    cloud.add_project("fresh", number=77)
    words = "container.googleapis.com has not been used in project 77 before or it is disabled"
    operation = clients.enable("container", project="projects/fresh")
    for _ in range(2):
        with pytest.raises(exceptions.PermissionDenied, match=words) as e:
            clients.gke.list_clusters(parent="projects/fresh/locations/-")
        assert e.value.reason == "SERVICE_DISABLED"
        operation.result(timeout=20)
    clients.gke.list_clusters(parent="projects/fresh/locations/-")

    url = f"{cloud.compute.endpoint}/compute/v1/{P}/zones"
    assert requests.get(url, headers={"Authorization": "Bearer x"}, timeout=9).status_code == 401
    cloud.delete_project("my-project")
    with pytest.raises(exceptions.PermissionDenied, match="has been deleted"):
        clients.account()


def test_calls_fail_before_or_after_their_effect_and_operations_after_polls(
    cloud: GoogleCloud, clients: Any
) -> None:
    cloud.fail("CreateServiceAccount", grpc.StatusCode.UNAVAILABLE, "busy", times=2)
    cloud.fail("networks.insert", 403, reason="quotaExceeded")
    cloud.fail("buckets.insert", 503, after=True)
    for _ in range(2):
        with pytest.raises(exceptions.ServiceUnavailable, match="busy"):
            clients.account()
    error = clients.compute("POST", "global/networks", status=403, **NETWORK)["error"]
    assert error["errors"][0]["reason"] == "quotaExceeded"
    with pytest.raises(exceptions.ServiceUnavailable):
        clients.storage.create_bucket("my-bucket", retry=None)
    assert cloud.changes == ["buckets.insert my-bucket"]

    cloud.polls = 2
    cloud.fail_operation("networks.insert", "stockout")
    failed = clients.compute("POST", "global/networks", **NETWORK)
    error = clients.compute("POST", SUBNETWORKS, status=400, **SUBNETWORK)["error"]
    assert error["errors"][0]["reason"] == "resourceNotReady"
    shown = clients.compute("GET", f"global/operations/{failed['name']}")
    assert (shown["status"], shown["error"]["errors"][0]["message"]) == ("DONE", "stockout")
    cloud.polls = 1
    clients.network()
    cloud.polls = 3
    cloud.fail_operation("CreateCluster", "stockout")
    operation = clients.cluster()
    with pytest.raises(exceptions.FailedPrecondition, match="Please wait and try again once it is"):
        clients.gke.delete_cluster(name=f"{L}/clusters/c")
    assert [clients.ended(operation).status.name for _ in range(2)] == ["RUNNING", "DONE"]
    found = clients.gke.get_cluster(name=f"{L}/clusters/c")
    assert (found.status.name, found.status_message) == ("ERROR", "stockout")


@pytest.mark.parametrize(
    ("problem", "act"),
    [
        ("already exists within", lambda c: (c.account(), c.account())),
        ("must match", lambda c: c.account("short")),
        ("Not found or permission", lambda c: c.enable("x")),
        (f"Service account {EMAIL} does not exist", lambda c: c.bind(f"serviceAccount:{EMAIL}")),
        ("is of an unknown type", lambda c: c.bind("me@example.com")),
        ("Identity Pool does not exist", lambda c: (c.network(), c.cluster(), c.bind(SUBJECT))),
        ("is not supported for this", lambda c: c.bind("user:a@b.test", "roles/storage.objctViewer")),
        ("concurrent policy changes", lambda c: c.bind("user:a@b.test", policy=c.bind("user:c@d.test"))),
        ("the repository already exists", lambda c: (c.repository(), c.repository())),
        ("needs an action", lambda c: c.repository(cleanup_policies={"x": {"id": "x"}})),
        ("Invalid label", lambda c: c.repository(labels={"A": "b"})),
        ('no network named "n"', lambda c: c.cluster()),
        ("at most 40 characters", lambda c: c.cluster(name="a" * 41)),
        ("must be regional", lambda c: c.gke.create_cluster(parent=f"{L}-a", cluster={"name": "c", "autopilot": {"enabled": True}})),
        ("already own it", lambda c: (c.bucket(), c.bucket())),
    ],
)  # fmt: skip
def test_a_request_that_the_service_refuses(
    clients: Any, problem: str, act: Callable[[Any], object]
) -> None:
    with pytest.raises(exceptions.GoogleAPICallError, match=problem):
        act(clients)


@pytest.mark.parametrize(
    ("place", "body", "status", "problem"),
    [
        ("global/networks", {**NETWORK, "labels": {}}, 400, 'Unknown name "labels": Cannot find field.'),
        ("global/networks", {**NETWORK, "name": "N"}, 400, "Must be a match of regex"),
        ("global/networks", {**NETWORK, "autoCreateSubnetworks": "no"}, 400, "Invalid value at"),
        (SUBNETWORKS, SUBNETWORK, 404, "/global/networks/n' was not found"),
        ("regions/mars/subnetworks", SUBNETWORK, 400, "regions/mars"),
        ("regions/us-central1/routers", {**SUBNETWORK, "nats": []}, 400, 'Unknown name "ipCidrRange"'),
        ("global/networks?maxResult=7", NETWORK, 400, "Cannot bind query parameter"),
    ],
)  # fmt: skip
def test_a_resource_that_compute_refuses(
    cloud: GoogleCloud, clients: Any, place: str, body: Any, status: int, problem: str
) -> None:
    assert problem in clients.compute("POST", place, status=status, **body)["error"]["message"]
    assert cloud.changes == []


@pytest.mark.parametrize(
    "fields",
    [
        {"location": "mars"},
        {"labels": {"Upper": "x"}},
        {"lifecycle": {"rules": []}},
        {"lifecycle": {"rule": [{"action": {"type": "Delete"}}]}},
        {"softDeletePolicy": {"retentionDurationSeconds": 60}},
    ],
)
def test_a_bucket_that_the_service_refuses(cloud: GoogleCloud, fields: Any) -> None:
    url = f"{cloud.buckets.endpoint}/storage/v1/b?project=my-project"
    answer = requests.post(url, json={"name": "my-bucket", **fields}, timeout=9)
    assert (answer.status_code, cloud.changes) == (400, [])


def test_the_policy_of_a_bucket_and_the_bucket_of_a_stranger(
    cloud: GoogleCloud, clients: Any
) -> None:
    bucket = clients.bucket()
    old = bucket.get_iam_policy(requested_policy_version=3)
    for policy, error in ((old, None), (old, exceptions.PreconditionFailed)):
        policy["roles/storage.objectUser"].add("user:a@b.test")
        if error is None:
            bucket.set_iam_policy(policy)
            continue
        with pytest.raises(error):
            bucket.set_iam_policy(policy)
    cloud.buckets.create_bucket("theirs", project="strange")
    with pytest.raises(exceptions.Conflict, match="bucket namespace is shared by all users"):
        clients.bucket("theirs")
    with pytest.raises(exceptions.Forbidden, match="does not have storage"):
        clients.storage.get_bucket("theirs")
