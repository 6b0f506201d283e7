"""Roles that members have in the project, in a bucket or in a repository: one binding each."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from google.cloud import iam_admin_v1
from google.iam.v1 import iam_policy_pb2

from kinetic.provisioning.edge import Edge
from kinetic.provisioning.google.buckets import storage_client
from kinetic.provisioning.google.cloud import Cloud
from kinetic.provisioning.google.projects import PROJECT_SERVICE, projects_client
from kinetic.provisioning.google.repositories import path_of, repositories_client
from kinetic.provisioning.plan import Action, Actual, Resource


class RolesEdge(Edge):
    """Gives roles, each to one member. The settings of a resource are `role`, `member` and `on`.

    *on* is `project`, `bucket NAME`, `repository LOCATION/NAME` or `service account EMAIL`.
    """

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        # A policy is read and written as a whole: of two writers at once, one would have to try again.
        self._writing = defaultdict[str, threading.Lock](threading.Lock)

    def service_of(self, resource: Resource) -> str:
        """Return the API of what the role is on."""
        on = resource.settings["on"].partition(" ")[0]
        return {
            "project": PROJECT_SERVICE,
            "repository": "artifactregistry.googleapis.com",
            "service": "iam.googleapis.com",
        }.get(on, "")

    def members(self, on: str, role: str) -> list[str]:
        """Return who has *role* on the `bucket NAME` or so; nobody if that does not exist."""
        resource = Resource(kind="role", name=role, settings={"on": on, "role": role})
        found = self._cloud.ask(
            f"read who has roles on the {on}", lambda: _members(self._policy(resource)[0], role)
        )
        return found or []

    def permissions(self, action: Action, resource: Resource) -> tuple[str, ...]:  # noqa: ARG002
        """Return the permissions in the project that *action* needs."""
        holder = {
            "project": "resourcemanager.projects",
            "bucket": "storage.buckets",
            "repository": "artifactregistry.repositories",
            "service": "iam.serviceAccounts",
        }[resource.settings["on"].partition(" ")[0]]
        return (f"{holder}.getIamPolicy", f"{holder}.setIamPolicy")

    def read(self, resource: Resource) -> Actual | None:
        """Return the binding; None if the member has not the role, or what it is on does not exist."""
        members = self.members(resource.settings["on"], resource.settings["role"])
        return Actual(settings=resource.settings) if self._in(resource, members) else None

    def create(self, resource: Resource) -> None:
        """Give the member the role."""

        def create() -> None:
            policy, write = self._policy(resource)
            members = _members(policy, resource.settings["role"])
            if not self._in(resource, members):
                write({*members, resource.settings["member"]})

        with self._writing[resource.settings["on"]]:
            self._cloud.change(f"give the {resource.id}", create)

    def delete(self, resource: Resource) -> None:
        """Take the role from the member."""

        def delete() -> None:
            policy, write = self._policy(resource)
            members = _members(policy, resource.settings["role"])
            if self._in(resource, members):
                write(set(members) - {resource.settings["member"]})

        with self._writing[resource.settings["on"]]:
            self._cloud.change(f"take the {resource.id}", delete)

    def _in(self, resource: Resource, members: list[str]) -> bool:
        return resource.settings["member"] in members

    def _policy(self, resource: Resource) -> tuple[Any, Callable[[set[str]], object]]:
        """Return the policy, and what writes it back with other members of the role."""
        on, _, name = resource.settings["on"].partition(" ")
        role = resource.settings["role"]
        if on == "bucket":
            bucket = storage_client(self._cloud).bucket(name)
            policy = bucket.get_iam_policy(
                requested_policy_version=3, timeout=self._cloud.timeout, retry=None
            )

            def write_to_bucket(members: set[str]) -> object:
                _set_members(policy.bindings, role, members)
                return bucket.set_iam_policy(policy, timeout=self._cloud.timeout, retry=None)

            return policy, write_to_bucket
        client: Any
        if on == "service":
            client = self._cloud.client("iam", iam_admin_v1.IAMClient)
            email = name.removeprefix("account ")
            where = f"projects/{self._cloud.project}/serviceAccounts/{email}"
        elif on == "project":
            client, where = projects_client(self._cloud), f"projects/{self._cloud.project}"
        else:
            client, where = repositories_client(self._cloud), path_of(self._cloud, name)
        asked: dict[str, Any] = {
            "resource": where,
            "options": {"requested_policy_version": 3},
        }
        found = client.get_iam_policy(request=asked, retry=None, timeout=self._cloud.timeout)

        def write(members: set[str]) -> object:
            found.version = max(found.version, 1)
            kept = [b for b in found.bindings if b.role != role or b.HasField("condition")]
            del found.bindings[:]
            found.bindings.extend(kept)
            if members:
                found.bindings.add(role=role, members=sorted(members))
            asked = iam_policy_pb2.SetIamPolicyRequest(resource=where, policy=found)
            return client.set_iam_policy(request=asked, retry=None, timeout=self._cloud.timeout)

        return found, write


def _members(policy: Any, role: str) -> list[str]:
    """Return who has *role* without a condition."""
    found: list[str] = []
    for binding in policy.bindings:
        if isinstance(binding, dict):
            if binding["role"] == role and not binding.get("condition"):
                found += binding["members"]
        elif binding.role == role and not binding.HasField("condition"):
            found += binding.members
    return found


def _set_members(bindings: list[dict[str, Any]], role: str, members: set[str]) -> None:
    bindings[:] = [b for b in bindings if b["role"] != role or b.get("condition")]
    if members:
        bindings.append({"role": role, "members": sorted(members)})
