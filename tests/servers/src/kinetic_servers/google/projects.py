"""Service Usage, Resource Manager and Cloud Quotas: a project's APIs, its policy, and its limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import grpc
from google.cloud import cloudquotas_v1
from google.cloud import resourcemanager_v3 as manager
from google.cloud import service_usage_v1 as usage

from kinetic_servers.google.places import REGIONS
from kinetic_servers.google.policies import PolicyCalls
from kinetic_servers.google.state import (
    ALWAYS,
    TITLES,
    ApiError,
    Project,
    State,
    invalid,
    new_name,
    not_found,
)

_MOST_READ = 30
_MOST_ENABLED = 20


class ServiceUsage:
    """`google.api.serviceusage.v1.ServiceUsage`."""

    api = "serviceusage"

    def __init__(self, state: State) -> None:
        self._state = state
        self.methods: Mapping[str, Callable[[Any], Any]] = {
            "BatchEnableServices": self._enable,
            "BatchGetServices": self._list,
            "GetService": self._get,
        }

    def _get(self, request: Any) -> Any:
        parts = request.name.split("/")
        if len(parts) != 4 or parts[::2] != ["projects", "services"]:
            raise invalid(f"Invalid name: {request.name}")
        project = self._of(request.name)
        _known(parts[3:])
        return _service(project, parts[3])

    def _list(self, request: Any) -> Any:
        project = self._of(request.parent)
        _limit(request.names, _MOST_READ)
        found = []
        for name in request.names:
            parts = name.split("/")
            if len(parts) != 4 or parts[2] != "services" or self._of(name) is not project:
                raise invalid(f"Invalid name {name!r} for parent {request.parent!r}.")
            found.append(parts[3])
        _known(found)
        return usage.BatchGetServicesResponse(services=[_service(project, each) for each in found])

    def _enable(self, request: Any) -> Any:
        project, wanted = self._of(request.parent), list(request.service_ids)
        _limit(wanted, _MOST_ENABLED)
        _known(wanted)
        if not project.billing:
            raise ApiError(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"Billing account for project '{project.number}' is not found. Billing must be enabled for "
                f"activation of service(s) '{','.join(wanted)}' to proceed.",
                reason="UREQ_PROJECT_BILLING_NOT_FOUND",
                domain="serviceusage.googleapis.com",
            )
        new = {each.partition(".")[0] for each in wanted} - project.apis.keys() - ALWAYS

        def finish() -> Any:
            project.apis.update(dict.fromkeys(new - project.apis.keys(), self._state.lag))
            services = [_service(project, each) for each in wanted]
            return usage.BatchEnableServicesResponse(services=services)

        if new:
            self._state.mark()
        name = f"operations/{new_name(f'acat.p2-{project.number}')}"
        names = [f"projects/{project.number}/services/{each}" for each in wanted]
        metadata = usage.OperationMetadata(resource_names=names)
        target = f"{project.id}/serviceusage"
        made = self._state.start("BatchEnableServices", name, target, finish, metadata=metadata)
        if not new and not made.error:
            made.polls = 0
            made.poll()
        return made

    def _of(self, name: str) -> Project:
        found = self._state.project("/".join(name.split("/")[:2]))
        if found is None:
            raise invalid(f"Invalid name: {name}")
        return found


def _service(project: Project, host: str) -> Any:
    api = host.partition(".")[0]
    enabled = api in ALWAYS or api in project.apis
    return usage.Service(
        name=f"projects/{project.number}/services/{host}",
        parent=f"projects/{project.number}",
        config={"name": host, "title": TITLES[api]},
        state=usage.State.ENABLED if enabled else usage.State.DISABLED,
    )


def _limit(names: Sequence[str], most: int) -> None:
    if not names or len(names) > most:
        raise invalid(f"Between 1 and {most} services are expected; got {len(names)}.")


def _known(hosts: Sequence[str]) -> None:
    strange = [each for each in hosts if each not in {f"{api}.googleapis.com" for api in TITLES}]
    if strange:
        raise ApiError(
            grpc.StatusCode.PERMISSION_DENIED,
            f"Not found or permission denied for service(s): {', '.join(strange)}.",
            reason="SERVICE_CONFIG_NOT_FOUND_OR_PERMISSION_DENIED",
            domain="serviceusage.googleapis.com",
            metadata={"services": ",".join(strange)},
        )


class Projects:
    """`google.cloud.resourcemanager.v3.Projects`."""

    api = "cloudresourcemanager"

    def __init__(self, state: State) -> None:
        self._state = state
        policies = PolicyCalls(state, self._key)
        self.methods: Mapping[str, Callable[[Any], Any]] = {
            "GetIamPolicy": policies.get,
            "GetProject": self._get,
            "SearchProjects": self._search,
            "SetIamPolicy": policies.set,
            "TestIamPermissions": policies.test,
        }

    def _get(self, request: Any) -> Any:
        found = self._state.project(request.name)
        assert found is not None, "`State.admit` has found it"
        return _project(found)

    def _search(self, request: Any) -> Any:
        """Return the projects that the caller can see: all of them."""
        found = map(_project, self._state.projects.values())
        if request.query not in ("", "state:ACTIVE"):
            raise invalid(f"Invalid query: {request.query}")
        active = manager.Project.State.ACTIVE
        wanted = [each for each in found if not request.query or each.state == active]
        return manager.SearchProjectsResponse(projects=wanted)

    def _key(self, resource: str) -> str:
        found = self._state.project(resource)
        if found is None or not resource.startswith("projects/"):
            raise invalid(f"Invalid resource: {resource}")
        return found.id


def _project(found: Project) -> Any:
    states = manager.Project.State
    return manager.Project(
        name=f"projects/{found.number}",
        project_id=found.id,
        display_name=found.id,
        parent="organizations/1",
        state=states.DELETE_REQUESTED if found.deleted else states.ACTIVE,
        etag=f"{found.number}",
    )


class Quotas:
    """`google.api.cloudquotas.v1.CloudQuotas`: limits of Compute Engine, the same in every region."""

    api = "cloudquotas"

    def __init__(self, state: State) -> None:
        self._state = state
        self.methods: Mapping[str, Callable[[Any], Any]] = {"GetQuotaInfo": self._get}

    def _get(self, request: Any) -> Any:
        place, _, quota = request.name.rpartition("/quotaInfos/")
        if not place.endswith("/locations/global/services/compute.googleapis.com"):
            raise invalid(f"Invalid name: {request.name}")
        if quota not in self._state.quotas:
            raise not_found(f"Quota {quota} was not found.")
        row = {"details": {"value": self._state.quotas[quota]}, "applicable_locations": [*REGIONS]}
        return cloudquotas_v1.QuotaInfo(name=request.name, quota_id=quota, dimensions_infos=[row])
