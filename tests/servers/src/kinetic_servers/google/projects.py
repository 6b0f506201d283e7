"""Service Usage, Resource Manager and Cloud Quotas: a project's APIs, its policy, and its limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import grpc
from google.cloud import cloudquotas_v1 as quotas
from google.cloud import resourcemanager_v3 as manager
from google.cloud import service_usage_v1 as usage
from google.iam.v1 import iam_policy_pb2
from google.longrunning import operations_pb2

from kinetic_servers.google.apis import Rpcs, rpcs
from kinetic_servers.google.places import REGIONS, parts_of
from kinetic_servers.google.policies import PolicyCalls
from kinetic_servers.google.state import (
    ALWAYS,
    KNOWN,
    ApiError,
    Operation,
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
        asked, operation = usage.BatchEnableServicesRequest, operations_pb2.Operation
        read, found = usage.BatchGetServicesRequest, usage.BatchGetServicesResponse
        self.services: Mapping[str, Rpcs] = {
            "google.api.serviceusage.v1.ServiceUsage": rpcs(
                ("serviceusage.services.enable", asked, operation, self._enable),
                ("serviceusage.services.get", read, found, self._list),
            )
        }

    def _list(self, request: Any) -> Any:
        project = self._of(request.parent)
        found = [parts_of(name, "projects", "services") for name in request.names]
        if any(self._state.project(each["projects"]) is not project for each in found):
            raise invalid(f"The names are not all of the parent {request.parent!r}.")
        services = _checked([each["services"] for each in found], _MOST_READ)
        shown = [_service(project, each) for each in services]
        return usage.BatchGetServicesResponse(services=shown)

    def _enable(self, request: Any) -> Operation:
        project, wanted = self._of(request.parent), _checked(request.service_ids, _MOST_ENABLED)
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
        target = f"{project.id}/serviceusage"
        metadata = usage.OperationMetadata()
        return self._state.start("BatchEnableServices", name, target, finish, metadata=metadata)

    def _of(self, name: str) -> Project:
        found = self._state.project(name)
        assert found is not None, "`State.admit` has found it"
        return found


def _service(project: Project, host: str) -> Any:
    api = host.partition(".")[0]
    enabled = api in ALWAYS or api in project.apis
    return usage.Service(
        name=f"projects/{project.number}/services/{host}",
        state=usage.State.ENABLED if enabled else usage.State.DISABLED,
    )


def _checked(hosts: Sequence[str], most: int) -> list[str]:
    """Return the names of services, which must exist and not be too many."""
    if not hosts or len(hosts) > most:
        raise invalid(f"Between 1 and {most} services are expected; got {len(hosts)}.")
    strange = [each for each in hosts if each not in {f"{api}.googleapis.com" for api in KNOWN}]
    if strange:
        raise ApiError(
            grpc.StatusCode.PERMISSION_DENIED,
            f"Not found or permission denied for service(s): {', '.join(strange)}.",
            reason="SERVICE_CONFIG_NOT_FOUND_OR_PERMISSION_DENIED",
            domain="serviceusage.googleapis.com",
        )
    return list(hosts)


class Projects:
    """`google.cloud.resourcemanager.v3.Projects`."""

    api = "cloudresourcemanager"

    def __init__(self, state: State) -> None:
        self._state = state
        policies = PolicyCalls(state, self._key)
        tested = iam_policy_pb2.TestIamPermissionsResponse
        found = manager.SearchProjectsResponse
        self.services: Mapping[str, Rpcs] = {
            "google.cloud.resourcemanager.v3.Projects": {
                **rpcs(
                    (None, manager.SearchProjectsRequest, found, self._search),
                    ("", iam_policy_pb2.TestIamPermissionsRequest, tested, policies.test),
                ),
                **policies.rpcs("resourcemanager.projects"),
            }
        }

    def _search(self, request: Any) -> Any:
        """Return the projects that the caller can see: all of them."""
        if request.query != "state:ACTIVE":
            raise invalid(f"Invalid query: {request.query}")
        found = [
            manager.Project(name=f"projects/{each.number}", project_id=each.id)
            for each in self._state.projects.values()
            if not each.deleted
        ]
        return manager.SearchProjectsResponse(projects=found)

    def _key(self, resource: str) -> str:
        found = self._state.project(resource)
        assert found is not None, "`State.admit` has found it"
        return found.id


class Quotas:
    """`google.api.cloudquotas.v1.CloudQuotas`: limits of Compute Engine, the same in every region."""

    api = "cloudquotas"

    def __init__(self, state: State) -> None:
        self._state = state
        may, asked = "cloudquotas.quotas.get", quotas.GetQuotaInfoRequest
        self.services: Mapping[str, Rpcs] = {
            "google.api.cloudquotas.v1.CloudQuotas": rpcs((may, asked, quotas.QuotaInfo, self._get))
        }

    def _get(self, request: Any) -> Any:
        place, _, quota = request.name.rpartition("/quotaInfos/")
        if not place.endswith("/locations/global/services/compute.googleapis.com"):
            raise invalid(f"Invalid name: {request.name}")
        if quota not in self._state.quotas:
            raise not_found(f"Quota {quota} was not found.")
        row = {"details": {"value": self._state.quotas[quota]}, "applicable_locations": [*REGIONS]}
        return quotas.QuotaInfo(name=request.name, quota_id=quota, dimensions_infos=[row])
