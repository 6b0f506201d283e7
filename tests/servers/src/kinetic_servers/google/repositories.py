"""Artifact Registry: repositories and their policies."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping
from typing import Any, Final

from google.cloud import artifactregistry_v1 as registry
from google.protobuf import empty_pb2

from kinetic_servers.google.places import LABEL_KEY, LABEL_VALUE, REGIONS, parts_of
from kinetic_servers.google.policies import PolicyCalls
from kinetic_servers.google.state import Operation, State, invalid, not_found, taken

_ID: Final = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
_CHANGEABLE: Final = (
    "cleanup_policies",
    "cleanup_policy_dry_run",
    "description",
    "docker_config",
    "labels",
    "vulnerability_scanning_config",
)


class Repositories:
    """`google.devtools.artifactregistry.v1.ArtifactRegistry`."""

    api = "artifactregistry"

    def __init__(self, state: State) -> None:
        self._state = state
        policies = PolicyCalls(state, self._key, "artifactregistry", public=True)
        self.methods: Mapping[str, Callable[[Any], Any]] = {
            "CreateRepository": self._create,
            "DeleteRepository": self._delete,
            "GetIamPolicy": policies.get,
            "GetRepository": lambda request: self._state.existing[self._key(request.name)],
            "ListRepositories": self._list,
            "SetIamPolicy": policies.set,
            "TestIamPermissions": policies.test,
            "UpdateRepository": self._update,
        }

    def _create(self, request: Any) -> Operation:
        parent, name = parts_of(request.parent, "projects", "locations"), request.repository_id
        project, location = self._project(parent), parent["locations"]
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
        mode: Any = registry.Repository.Mode.STANDARD_REPOSITORY
        made.mode = made.mode or mode
        kind = registry.Repository.Format(made.format_).name.lower()
        made.registry_uri = f"{location}-{kind}.pkg.dev/{project}/{name}"
        _check(made)
        self._state.existing[key] = made
        self._state.mark()
        remove = self._state.existing.pop
        return self._start(
            "CreateRepository", key, lambda: made, lambda _: remove(key, None), request.parent
        )

    def _update(self, request: Any) -> Any:
        key = self._key(request.repository.name)
        paths = list(request.update_mask.paths)
        if not paths or not set(paths) <= set(_CHANGEABLE):
            raise invalid(f"The update mask may have {', '.join(_CHANGEABLE)}; got {paths}.")
        old = self._state.existing[key]
        made = registry.Repository(old)
        for path in paths:
            setattr(made, path, getattr(request.repository, path))
        _check(made)
        if made != old:
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

    def _list(self, request: Any) -> Any:
        parent = parts_of(request.parent, "projects", "locations")
        prefix = f"{self._project(parent)}/artifactregistry/repositories/{parent['locations']}/"
        names = sorted(each for each in self._state.existing if each.startswith(prefix))
        start, size = int(request.page_token or 0), request.page_size or 100
        more = str(start + size) if start + size < len(names) else ""
        found = [self._state.existing[each] for each in names[start : start + size]]
        return registry.ListRepositoriesResponse(repositories=found, next_page_token=more)

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

    def _project(self, parts: Mapping[str, str]) -> str:
        found = self._state.project(parts["projects"])
        assert found is not None, "`State.admit` has found it"
        return found.id

    def _key(self, name: str) -> str:
        parts = parts_of(name, "projects", "locations", "repositories")
        place = f"{parts['locations']}/{parts['repositories']}"
        key = f"{self._project(parts)}/artifactregistry/repositories/{place}"
        if key not in self._state.existing:
            raise not_found(f'Requested entity was not found: "{name}"')
        return key


def _check(repository: Any) -> None:
    for key, value in repository.labels.items():
        if not LABEL_KEY.fullmatch(key) or not LABEL_VALUE.fullmatch(value):
            raise invalid(f"Invalid label: {key}={value}")
    for key, policy in repository.cleanup_policies.items():
        if policy.id != key:
            raise invalid(f"The cleanup policy {key!r} has another id: {policy.id!r}.")
        if not policy.action or not (policy.condition or policy.most_recent_versions):
            raise invalid(f"The cleanup policy {key!r} needs an action and a condition.")
