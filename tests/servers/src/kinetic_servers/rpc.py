"""What the gRPC servers share: the server, its log of requests, and faults."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn, Self

import grpc
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status


@dataclass(frozen=True)
class Method:
    """A method of a gRPC service, and who performs it."""

    name: str
    """With its service: `google.container.v1.ClusterManager/GetCluster`."""
    request: Any
    """The type of its requests, as is `response` of its responses."""
    response: Any
    serve: Callable[[Any, grpc.ServicerContext], Any]


@dataclass
class _Fault:
    method: str
    code: grpc.StatusCode
    message: str
    reason: str
    times: int
    after: bool


class RpcServer:
    """A gRPC server on a port of this machine. Use it in a `with` block.

    *credentials* make it serve TLS; without them, clients connect without encryption and login. Subclasses
    define `methods`.
    """

    domain: ClassVar[str]
    """The host of the API, which errors name."""

    def __init__(self, credentials: grpc.ServerCredentials | None) -> None:
        self.requests: list[str] = []
        """The requests, in order; see `describe`."""
        self.endpoint = ""
        """`http://HOST:PORT` without TLS, `HOST:PORT` with it; once it runs."""
        self._credentials = credentials
        self._faults: list[_Fault] = []
        self._lock = threading.RLock()
        self._running = ExitStack()

    def methods(self) -> Iterable[Method]:
        raise NotImplementedError

    def describe(self, method: str, request: Any) -> str:
        """Return how the log shows a request."""
        return method

    def authenticate(self, context: grpc.ServicerContext) -> None:
        """End a call without the right credentials."""

    def __enter__(self) -> Self:
        # The pool has more threads than the tests have clients.
        server = grpc.server(ThreadPoolExecutor(max_workers=16))
        for method in self.methods():
            service, _, name = method.name.partition("/")
            handler = grpc.unary_unary_rpc_method_handler(
                self._guarded(method.name, method.serve),
                request_deserializer=getattr(method.request, "deserialize", None)
                or method.request.FromString,
                response_serializer=getattr(method.response, "serialize", None)
                or method.response.SerializeToString,
            )
            handlers = grpc.method_handlers_generic_handler(service, {name: handler})
            server.add_generic_rpc_handlers((handlers,))
        if self._credentials is None:
            self.endpoint = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        else:
            port = server.add_secure_port("127.0.0.1:0", self._credentials)
            # Not `localhost`, which is two addresses.
            self.endpoint = f"127.0.0.1:{port}"
        server.start()
        self._running.callback(lambda: server.stop(grace=None).wait())
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def fail(
        self,
        method: str,
        code: grpc.StatusCode,
        message: str = "injected",
        *,
        reason: str = "",
        times: int = 1,
        after: bool = False,
    ) -> None:
        """Let the next requests of *method* fail, such as `GetCluster` or `ClusterManager/GetCluster`.

        *reason* is that of an `ErrorInfo`. *after*: the request has its effect, and only its response is lost.
        """
        with self._lock:
            self._faults.append(_Fault(method, code, message, reason, times, after))

    def abort(
        self,
        context: grpc.ServicerContext,
        code: grpc.StatusCode,
        message: str,
        reason: str = "",
        *,
        domain: str = "googleapis.com",
        metadata: Mapping[str, str] | None = None,
    ) -> NoReturn:
        """End the call with an error as the real API sends it, with its *reason* in an `ErrorInfo`."""
        details = []
        if reason:
            known = {"service": self.domain} if metadata is None else metadata
            info = error_details_pb2.ErrorInfo(reason=reason, domain=domain, metadata=known)
            details.append(packed(info))
        status = status_pb2.Status(code=code.value[0], message=message, details=details)
        context.abort_with_status(rpc_status.to_status(status))
        raise AssertionError("unreachable: `abort_with_status` raises")

    def _guarded(
        self, method: str, serve: Callable[[Any, grpc.ServicerContext], Any]
    ) -> Callable[[Any, grpc.ServicerContext], Any]:
        """Return a handler that logs the request, fails where a fault says so, and checks credentials."""

        name = method.rpartition("/")[2]
        names = (name, method, method.rpartition(".")[2])

        def handle(request: Any, context: grpc.ServicerContext) -> Any:
            with self._lock:
                self.requests.append(self.describe(name, request))
                fault = next((each for each in self._faults if each.method in names), None)
                if fault is not None:
                    fault.times -= 1
                    if fault.times == 0:
                        self._faults.remove(fault)
            answer = None
            if fault is None or fault.after:
                self.authenticate(context)
                answer = serve(request, context)
            if fault is not None:
                self.abort(context, fault.code, fault.message, fault.reason)
            return answer

        return handle


def packed(message: Any) -> Any:
    """Return *message* as an `Any`."""
    found = any_pb2.Any()
    found.Pack(type(message).pb(message) if hasattr(type(message), "pb") else message)
    return found
