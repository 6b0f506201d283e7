"""The gRPC services on their port: authentication, permissions, and errors of all methods."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import grpc
from google.longrunning import operations_pb2
from google.rpc import status_pb2

from kinetic_servers.gke import Authority, GoogleIdentity
from kinetic_servers.google.state import ApiError, Operation, State, invalid, not_found
from kinetic_servers.rpc import Method, RpcServer, packed


@dataclass(frozen=True)
class Rpc:
    """A method of a service."""

    permission: str | None
    """Which it needs; empty: none, but its API; None: nothing at all."""
    request: Any
    response: Any
    serve: Callable[[Any], Any]


Rpcs = Mapping[str, Rpc]
"""The methods of a service, by name."""


def rpcs(*rows: tuple[str | None, Any, Any, Callable[[Any], Any]]) -> Rpcs:
    """Return methods from the fields of `Rpc`; the type of its requests tells the name of each."""
    return {row[1].__name__.removesuffix("Request"): Rpc(*row) for row in rows}


class Api(Protocol):
    """An API, which may have several gRPC services."""

    api: str
    """The host, without `.googleapis.com`."""
    services: Mapping[str, Rpcs]
    """Full name of a service → its methods, by name."""


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
        self._apis = apis

    def methods(self) -> Iterator[Method]:
        for api in self._apis:
            for service, methods in api.services.items():
                for name, rpc in methods.items():
                    serve = partial(self._serve, api.api, name, rpc)
                    yield Method(f"{service}/{name}", rpc.request, rpc.response, serve)
        found = Rpc(
            None, operations_pb2.GetOperationRequest, operations_pb2.Operation, self._polled
        )
        serve = partial(self._serve, "", "GetOperation", found)
        yield Method(
            "google.longrunning.Operations/GetOperation", found.request, found.response, serve
        )

    def describe(self, method: str, request: Any) -> str:
        return f"{method} {_place(request)}"

    def _serve(
        self, api: str, method: str, rpc: Rpc, request: Any, context: grpc.ServicerContext
    ) -> Any:
        description = self.describe(method, request)
        threading.Event().wait(self._state.delay)
        try:
            with self._state.lock:
                self._state.check_alive()
                self._check_token(context)
                if rpc.permission is not None:
                    place = _place(request)
                    if not place.startswith("projects/"):
                        raise invalid(f"Invalid resource name: {place!r}.")
                    resource = f"//{api}.googleapis.com/{place}"
                    self._state.admit(api, rpc.permission, place.split("/")[1], resource)
                answer = rpc.serve(request)
                if isinstance(answer, Operation):
                    answer = _shown(answer)
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
        hosts = [f"https://{each.api}.googleapis.com/" for each in self._apis]
        if not any(self._identity.accepts(token, each) for each in hosts):
            raise ApiError(
                grpc.StatusCode.UNAUTHENTICATED,
                "Request had invalid authentication credentials.",
                reason="ACCESS_TOKEN_TYPE_UNSUPPORTED",
            )

    def _polled(self, request: Any) -> Any:
        found = self._state.operations.get(request.name)
        if found is None:
            raise not_found(f"Operation not found: {request.name}")
        found.poll()
        return found


def _place(request: Any) -> str:
    """Return the resource that a request names."""
    found = [str(getattr(request, name, "")) for name in ("name", "parent", "resource")]
    inner = str(getattr(getattr(request, "repository", None), "name", ""))
    return next(filter(None, found), inner)


def _shown(operation: Operation) -> Any:
    made = operations_pb2.Operation(name=operation.name, done=operation.done)
    made.metadata.CopyFrom(packed(operation.details["metadata"]))
    if operation.done and operation.error:
        status = status_pb2.Status(code=operation.code.value[0], message=operation.error)
        made.error.CopyFrom(status)
    elif operation.done:
        made.response.CopyFrom(packed(operation.response))
    return made
