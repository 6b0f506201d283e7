"""Google's own clients of the servers of all its APIs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import google.auth
import pytest
from google.auth.transport.requests import AuthorizedSession
from google.cloud import (
    artifactregistry_v1,
    container_v1,
    iam_admin_v1,
    resourcemanager_v3,
    service_usage_v1,
    storage,
)
from google.iam.v1 import iam_policy_pb2, policy_pb2

from kinetic_servers.google import GoogleCloud

APIS = ("artifactregistry", "cloudresourcemanager", "compute", "container", "iam")
P = "projects/my-project"
L = f"{P}/locations/us-central1"


@dataclass
class Clients:
    """The clients, and the calls that most tests need."""

    cloud: GoogleCloud

    def _made(self, kind: Any) -> Any:
        return kind(client_options={"api_endpoint": self.cloud.grpc.endpoint})

    @cached_property
    def usage(self) -> Any:
        return self._made(service_usage_v1.ServiceUsageClient)

    @cached_property
    def projects(self) -> Any:
        return self._made(resourcemanager_v3.ProjectsClient)

    @cached_property
    def iam(self) -> Any:
        return self._made(iam_admin_v1.IAMClient)

    @cached_property
    def registry(self) -> Any:
        return self._made(artifactregistry_v1.ArtifactRegistryClient)

    @cached_property
    def gke(self) -> Any:
        return self._made(container_v1.ClusterManagerClient)

    @cached_property
    def storage(self) -> storage.Client:
        return storage.Client("my-project")

    @cached_property
    def session(self) -> AuthorizedSession:
        scope = "https://www.googleapis.com/auth/cloud-platform"
        return AuthorizedSession(google.auth.default([scope])[0])

    def compute(self, method: str, path: str, *, status: int = 200, **body: Any) -> Any:
        """Call Compute; a path without `projects/` is one of the project."""
        url = f"{self.cloud.compute.endpoint}/compute/v1/{P}/{path}"
        answer = self.session.request(method, url, json=body or None)
        assert answer.status_code == status, answer.text
        return json.loads(answer.text)

    def done(self, method: str, path: str, **body: Any) -> Any:
        """Call Compute, and wait for the operation."""
        link = self.compute(method, path, **body)["selfLink"]
        return self.compute("POST", f"{link.partition(f'{P}/')[2]}/wait")

    def network(self, name: str = "n", region: str = "us-central1") -> None:
        """Make a network with a subnetwork of the same name."""
        self.done("POST", "global/networks", name=name, autoCreateSubnetworks=False)
        place = f"regions/{region}/subnetworks"
        network = f"global/networks/{name}"
        self.done("POST", place, name=name, network=network, ipCidrRange="10.0.0.0/20")

    def cluster(self, name: str = "c", **fields: Any) -> Any:
        """Make an Autopilot cluster in the network `n`."""
        made = {"name": name, "network": "n", "subnetwork": "n", "autopilot": {"enabled": True}}
        return self.gke.create_cluster(parent=L, cluster={**made, **fields})

    def ended(self, operation: Any) -> Any:
        """Poll an operation of GKE once."""
        return self.gke.get_operation(name=f"{L}/operations/{operation.name}")

    def account(self, name: str = "worker", **fields: Any) -> Any:
        request = {"name": P, "account_id": name, "service_account": fields}
        return self.iam.create_service_account(request=request)

    def repository(self, name: str = "kinetic", **fields: Any) -> Any:
        made = {"format_": "DOCKER", "labels": {"a": "b"}, **fields}
        return self.registry.create_repository(parent=L, repository=made, repository_id=name)

    def bucket(self, name: str = "my-bucket") -> storage.Bucket:
        """Make a bucket with uniform access."""
        made = self.storage.bucket(name)
        made.iam_configuration.uniform_bucket_level_access_enabled = True
        made.create(location="us-central1")
        return made

    def bind(self, member: str, role: str = "roles/logging.logWriter") -> policy_pb2.Policy:
        """Add a binding to the project's policy."""
        options = {"requested_policy_version": 3}
        policy = self.projects.get_iam_policy(request={"resource": P, "options": options})
        policy.bindings.add(role=role, members=[member])
        return self.projects.set_iam_policy(
            request=iam_policy_pb2.SetIamPolicyRequest(resource=P, policy=policy)
        )


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
