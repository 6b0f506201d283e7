"""Roles that members have in the project, in a bucket or in a repository: one binding each."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Final

from google.cloud import iam_admin_v1
from google.iam.v1 import policy_pb2
from google.protobuf.json_format import MessageToDict

from kinetic.provisioning.edge import Edge
from kinetic.provisioning.google.buckets import storage_client
from kinetic.provisioning.google.cloud import Cloud
from kinetic.provisioning.google.projects import PROJECT_SERVICE, projects_client
from kinetic.provisioning.google.repositories import path_of, repositories_client
from kinetic.provisioning.plan import Action, Actual, Resource

Binding = dict[str, Any]
"""A role with its members, and maybe a condition."""

_HOLDERS: Final = {
    "project": (PROJECT_SERVICE, "resourcemanager.projects"),
    "bucket": ("", "storage.buckets"),
    "repository": ("artifactregistry.googleapis.com", "artifactregistry.repositories"),
    "service": ("iam.googleapis.com", "iam.serviceAccounts"),
}
"""By the kind of what a role is on, the API and the beginning of its permissions."""


class RolesEdge(Edge):
    """Gives roles, each to one member. The settings of a resource are `role`, `member` and `on`.

    *on* is `project`, `bucket NAME`, `repository LOCATION/NAME` or `service account EMAIL`.
    """

    def __init__(self, cloud: Cloud) -> None:
        super().__init__(cloud)
        # A policy is read and written as a whole: of two writers at once, one would have to try again.
        self._writing = defaultdict[str, threading.Lock](threading.Lock)

    def service_of(self, resource: Resource) -> str:
        """Return the API of what the role is on."""
        return _HOLDERS[resource.settings["on"].partition(" ")[0]][0]

    def members(self, on: str, role: str) -> list[str]:
        """Return who has *role* on the `bucket NAME` or so; nobody if that does not exist."""
        return _members(
            self._cloud.ask(f"read who has roles on the {on}", lambda: self._policy(on)[0]), role
        )

    def permissions(self, action: Action, resource: Resource) -> tuple[str, ...]:  # noqa: ARG002
        """Return the permissions in the project that *action* needs."""
        _, holder = _HOLDERS[resource.settings["on"].partition(" ")[0]]
        return (f"{holder}.getIamPolicy", f"{holder}.setIamPolicy")

    def read(self, resource: Resource) -> Actual | None:
        """Return the binding; None if the member has not the role, or what it is on does not exist."""
        wanted = resource.settings
        members = self.members(wanted["on"], wanted["role"])
        return Actual(settings=wanted) if wanted["member"] in members else None

    def create(self, resource: Resource) -> None:
        """Give the member the role."""
        self._write("give", resource, lambda members, member: {*members, member})

    def delete(self, resource: Resource) -> None:
        """Take the role from the member."""
        self._write("take", resource, lambda members, member: {*members} - {member})

    def _write(
        self, verb: str, resource: Resource, change: Callable[[list[str], str], set[str]]
    ) -> None:
        """Write the policy with the members of the role that *change* returns, unless those have it."""
        on, role = resource.settings["on"], resource.settings["role"]

        def write() -> None:
            bindings, write_back = self._policy(on)
            before = _members(bindings, role)
            after = change(before, resource.settings["member"])
            if after == {*before}:
                return
            kept = [each for each in bindings if each["role"] != role or each.get("condition")]
            write_back([*kept, {"role": role, "members": sorted(after)}] if after else kept)

        with self._writing[on]:
            self._cloud.change(f"{verb} the {resource.id}", write)

    def _policy(self, on: str) -> tuple[list[Binding], Callable[[list[Binding]], object]]:
        """Return the bindings of the policy on the `bucket NAME` or so, and what writes others in their place."""
        kind, _, name = on.partition(" ")
        if kind == "bucket":
            return self._policy_of_bucket(name)
        client: Any
        if kind == "service":
            client = self._cloud.client("iam", iam_admin_v1.IAMClient)
            email = name.removeprefix("account ")
            where = f"projects/{self._cloud.project}/serviceAccounts/{email}"
        elif kind == "project":
            client, where = projects_client(self._cloud), f"projects/{self._cloud.project}"
        else:
            client, where = repositories_client(self._cloud), path_of(self._cloud, name)
        limits = {"retry": None, "timeout": self._cloud.timeout}
        asked = {"resource": where, "options": {"requested_policy_version": 3}}
        found = client.get_iam_policy(request=asked, **limits)

        def write(bindings: list[Binding]) -> object:
            found.version = max(found.version, 1)
            del found.bindings[:]
            found.bindings.extend(policy_pb2.Binding(**each) for each in bindings)
            return client.set_iam_policy(request={"resource": where, "policy": found}, **limits)

        return [*map(MessageToDict, found.bindings)], write

    def _policy_of_bucket(
        self, name: str
    ) -> tuple[list[Binding], Callable[[list[Binding]], object]]:
        limits = {"retry": None, "timeout": self._cloud.timeout}
        bucket = storage_client(self._cloud).bucket(name)
        found = bucket.get_iam_policy(requested_policy_version=3, **limits)

        def write(bindings: list[Binding]) -> object:
            found.bindings = bindings
            return bucket.set_iam_policy(found, **limits)

        return found.bindings, write


def _members(bindings: list[Binding] | None, role: str) -> list[str]:
    """Return who has *role* without a condition."""
    return [
        member
        for each in bindings or ()
        if each["role"] == role and not each.get("condition")
        for member in each["members"]
    ]
