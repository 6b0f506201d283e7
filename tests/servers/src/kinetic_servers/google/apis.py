"""The gRPC services on their port: types, authentication, permissions, and errors of all methods."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, Protocol

import grpc
from google.cloud import (
    artifactregistry_v1,
    billing_v1,
    cloudquotas_v1,
    container_v1,
    iam_admin_v1,
)
from google.cloud import resourcemanager_v3 as manager
from google.cloud import service_usage_v1 as usage
from google.iam.v1 import iam_policy_pb2, policy_pb2
from google.longrunning import operations_pb2
from google.protobuf import empty_pb2
from google.protobuf.unknown_fields import UnknownFieldSet
from google.rpc import status_pb2

from kinetic_servers.gke import Authority, GoogleIdentity
from kinetic_servers.google.clusters import Clusters
from kinetic_servers.google.permissions import GRPC
from kinetic_servers.google.state import ApiError, Operation, State, invalid, not_found
from kinetic_servers.rpc import Method, RpcServer, packed

_LIBRARIES: Final = {
    "google.api.serviceusage.v1.ServiceUsage": usage,
    "google.cloud.resourcemanager.v3.Projects": manager,
    "google.iam.admin.v1.IAM": iam_admin_v1,
    "google.devtools.artifactregistry.v1.ArtifactRegistry": artifactregistry_v1,
    "google.container.v1.ClusterManager": container_v1,
    "google.api.cloudquotas.v1.CloudQuotas": cloudquotas_v1,
    "google.cloud.billing.v1.CloudBilling": billing_v1,
    "google.cloud.billing.v1.CloudCatalog": billing_v1,
    "google.longrunning.Operations": operations_pb2,
}
_POLICY: Final = {
    "GetIamPolicy": policy_pb2.Policy,
    "SetIamPolicy": policy_pb2.Policy,
    "TestIamPermissions": iam_policy_pb2.TestIamPermissionsResponse,
}
_LRO: Final = {"BatchEnableServices", "CreateRepository", "DeleteRepository"}
_NO_PROJECT: Final = {"SearchProjects", "ListSkus"}
_PLACES: Final = ("name", "parent", "resource")


class Api(Protocol):
    """A gRPC service: its handlers by method."""

    api: str
    """The host, without `.googleapis.com`."""
    methods: Mapping[str, Callable[[Any], Any]]


class GoogleApis(RpcServer):
    """All gRPC services of Google on one port, with TLS."""

    domain = "googleapis.com"

    def __init__(
        self, state: State, authority: Authority, identity: GoogleIdentity, apis: list[Api]
    ) -> None:
        super().__init__(authority.credentials())
        self.requests = state.requests
        self._state = state
        self._identity = identity
        self._apis = {each.api: each for each in apis}
        self._clusters = next(each for each in apis if isinstance(each, Clusters))

    def methods(self) -> Iterator[Method]:
        names = [*self._apis, "cloudbilling", ""]  # Two services are one API.
        hosts = dict(zip(_LIBRARIES, names, strict=True))
        for service, methods in GRPC.items():
            api = self._apis.get(hosts[service])
            for name, permission in methods.items():
                handler = self._operation if api is None else api.methods[name]
                asked, answer = _types(service, name)
                serve = partial(self._serve, hosts[service], permission, name, handler)
                yield Method(f"{service}/{name}", _reader(asked), _writer(answer), serve)

    def describe(self, method: str, request: Any) -> str:
        return f"{method} {_place(request)}"

    def _serve(
        self,
        api: str,
        permission: str,
        method: str,
        handler: Callable[[Any], Any],
        request: Any,
        context: grpc.ServicerContext,
    ) -> Any:
        description = self.describe(method, request)
        threading.Event().wait(self._state.delay)
        try:
            with self._state.lock:
                self._state.check_alive()
                self._check_token(context)
                _refuse_unknown(request)
                if api and method not in _NO_PROJECT:
                    self._admit(api, permission, _place(request))
                answer = handler(request)
                if isinstance(answer, Operation):
                    answer = self._clusters.shown(answer) if api == "container" else _lro(answer)
                changed = self._state.take_change(description)
            if changed and self._state.hook is not None:
                self._state.hook(description)
            self._state.check_alive()
        except ApiError as error:
            self.abort(
                context,
                error.code,
                error.message,
                error.reason,
                domain=error.domain,
                metadata=error.metadata or {"service": f"{api}.googleapis.com"},
            )
        return answer

    def _check_token(self, context: grpc.ServicerContext) -> None:
        sent = str(dict(context.invocation_metadata()).get("authorization", ""))
        token = sent.removeprefix("Bearer ")
        hosts = [f"https://{each}.googleapis.com/" for each in self._apis]
        if not any(self._identity.accepts(token, each) for each in hosts):
            raise ApiError(
                grpc.StatusCode.UNAUTHENTICATED,
                "Request had invalid authentication credentials.",
                reason="ACCESS_TOKEN_TYPE_UNSUPPORTED",
            )

    def _admit(self, api: str, permission: str, place: str) -> None:
        parts = place.split("/")
        if len(parts) < 2 or parts[0] != "projects":
            raise invalid(f"Invalid resource name: {place!r}.")
        project = parts[1]
        if api == "iam" and len(parts) == 4:
            # A wildcard is allowed, since the address names the project.
            project = parts[3].partition("@")[2].removesuffix(".iam.gserviceaccount.com") or project
        self._state.admit(api, permission, project, f"//{api}.googleapis.com/{place}")

    def _operation(self, request: Any) -> Any:
        found = self._state.operations.get(request.name)
        if found is None:
            raise not_found(f"Operation not found: {request.name}")
        found.poll()
        return _lro(found)


def _types(service: str, method: str) -> tuple[Any, Any]:
    """Return the types of a method's request and response."""
    library = _LIBRARIES[service]
    if service == "google.longrunning.Operations":
        return operations_pb2.GetOperationRequest, operations_pb2.Operation
    if method in _POLICY:
        return getattr(iam_policy_pb2, f"{method}Request"), _POLICY[method]
    asked = getattr(library, f"{method}Request")
    if method in _LRO:
        return asked, operations_pb2.Operation
    if service == "google.container.v1.ClusterManager":
        changes = (
            method.startswith(("Create", "Update", "Delete", "Set")) or method == "GetOperation"
        )
        if changes:
            return asked, container_v1.Operation
    if method == "GetProjectBillingInfo":
        return asked, billing_v1.ProjectBillingInfo
    if method == "DeleteServiceAccount":
        return asked, empty_pb2.Empty
    thing = (
        method.removeprefix("Get")
        .removeprefix("Create")
        .removeprefix("Update")
        .removeprefix("Patch")
    )
    return asked, getattr(library, f"{method}Response", None) or getattr(library, thing)


def _reader(kind: Any) -> Callable[[bytes], Any]:
    return getattr(kind, "deserialize", None) or kind.FromString  # type: ignore[no-any-return]


def _writer(kind: Any) -> Callable[[Any], bytes]:
    return getattr(kind, "serialize", None) or kind.SerializeToString  # type: ignore[no-any-return]


def _place(request: Any) -> str:
    """Return the resource that a request names."""
    for inner in ("service_account", "repository"):
        if hasattr(request, "update_mask") and hasattr(request, inner):
            return str(getattr(request, inner).name)
    return next((str(found) for name in _PLACES if (found := getattr(request, name, ""))), "")


def _refuse_unknown(request: Any) -> None:
    """Refuse a message with fields that the API does not know."""
    message = type(request).pb(request) if hasattr(type(request), "pb") else request
    waiting = [message]
    while waiting:
        each = waiting.pop()
        for field in UnknownFieldSet(each):
            raise invalid(
                f"Request contains an unknown field: number {field.field_number} of {each.DESCRIPTOR.full_name}."
            )
        for descriptor, value in each.ListFields():
            if descriptor.message_type is None:
                continue
            if descriptor.message_type.GetOptions().map_entry:
                values = list(value.values())
            else:
                values = [value] if hasattr(value, "DESCRIPTOR") else list(value)
            waiting += [one for one in values if hasattr(one, "ListFields")]


def _lro(operation: Operation) -> Any:
    made = operations_pb2.Operation(name=operation.name, done=operation.done)
    made.metadata.CopyFrom(_packed(operation.details["metadata"]))
    if operation.done and operation.error:
        made.error.CopyFrom(
            status_pb2.Status(code=operation.code.value[0], message=operation.error)
        )
    elif operation.done:
        made.response.CopyFrom(_packed(operation.response))
    return made


def _packed(message: Any) -> Any:
    return packed(type(message).pb(message) if hasattr(type(message), "pb") else message)
