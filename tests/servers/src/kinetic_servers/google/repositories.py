"""Artifact Registry: repositories and their policies."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping
from typing import Any, Final

from google.cloud import artifactregistry_v1 as registry
from google.longrunning import operations_pb2
from google.protobuf import empty_pb2

from kinetic_servers.google.apis import Rpcs, rpcs
from kinetic_servers.google.places import REGIONS, check_labels, parts_of
from kinetic_servers.google.policies import PolicyCalls
from kinetic_servers.google.state import Operation, State, invalid, not_found, taken

_ID: Final = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")


class Repositories:
    """`google.devtools.artifactregistry.v1.ArtifactRegistry`."""

    api = "artifactregistry"

    def __init__(self, state: State) -> None:
        self._state = state
        policies = PolicyCalls(state, self._key, "artifactregistry")
        may = "artifactregistry.repositories"
        made, operation = registry.Repository, operations_pb2.Operation
        self.services: Mapping[str, Rpcs] = {
            "google.devtools.artifactregistry.v1.ArtifactRegistry": {
                **rpcs(
                    (f"{may}.create", registry.CreateRepositoryRequest, operation, self._create),
                    (f"{may}.delete", registry.DeleteRepositoryRequest, operation, self._delete),
                    (f"{may}.get", registry.GetRepositoryRequest, made, self._get),
                    (f"{may}.update", registry.UpdateRepositoryRequest, made, self._update),
                ),
                **policies.rpcs(may),
            }
        }

    def _get(self, request: Any) -> Any:
        return self._state.existing[self._key(request.name)]

    def _create(self, request: Any) -> Operation:
        parent, name = parts_of(request.parent, "projects", "locations"), request.repository_id
        project, location = parent["projects"], parent["locations"]
        if location not in {*REGIONS, "us", "europe", "asia"}:
            raise invalid(f"Location {location!r} is not a valid location.")
        if not _ID.fullmatch(name):
            raise invalid(f"Invalid repository ID {name!r}: it must match {_ID.pattern}.")
        made = registry.Repository(request.repository)
        if not made.format_:
            raise invalid("The repository's format must be specified.")
        key = f"{project}/artifactregistry/repositories/{location}/{name}"
        if key in self._state.existing:
            raise taken("the repository already exists")
        made.name = f"projects/{project}/locations/{location}/repositories/{name}"
        _check(made)
        self._state.existing[key] = made
        self._state.mark()
        remove = self._state.existing.pop
        return self._start(
            "CreateRepository", key, lambda: made, lambda _: remove(key, None), request.parent
        )

    def _update(self, request: Any) -> Any:
        key = self._key(request.repository.name)
        if list(request.update_mask.paths) != ["cleanup_policies"]:
            raise invalid(f"This server does not change {list(request.update_mask.paths)}.")
        made = registry.Repository(self._state.existing[key])
        made.cleanup_policies = request.repository.cleanup_policies
        _check(made)
        self._state.existing[key] = made
        self._state.mark()
        return made

    def _delete(self, request: Any) -> Operation:
        key = self._key(request.name)

        def finish() -> Any:
            self._state.existing.pop(key, None)
            self._state.policies.pop(key, None)
            return empty_pb2.Empty()

        self._state.mark()
        place = request.name.partition("/repositories/")[0]
        return self._start("DeleteRepository", key, finish, lambda _: None, place)

    def _start(
        self,
        method: str,
        key: str,
        finish: Callable[[], Any],
        give_up: Callable[[str], Any],
        place: str,
    ) -> Operation:
        name = f"{place}/operations/{secrets.token_hex(16)}"
        metadata = registry.OperationMetadata()
        return self._state.start(method, name, key, finish, give_up, metadata=metadata)

    def _key(self, name: str) -> str:
        parts = parts_of(name, "projects", "locations", "repositories")
        project, location, own = parts.values()
        key = f"{project}/artifactregistry/repositories/{location}/{own}"
        if key not in self._state.existing:
            raise not_found(f'Requested entity was not found: "{name}"')
        return key


def _check(repository: Any) -> None:
    check_labels(repository.labels)
    for key, policy in repository.cleanup_policies.items():
        if policy.id != key:
            raise invalid(f"The cleanup policy {key!r} has another id: {policy.id!r}.")
        if not policy.action or not (policy.condition or policy.most_recent_versions):
            raise invalid(f"The cleanup policy {key!r} needs an action and a condition.")
