"""The GKE API as a gRPC server over TLS: clusters, their node pools, and faults."""

from __future__ import annotations

import threading
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn, Self

import grpc
import trustme
from google.cloud import container_v1
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from kinetic_k8s.testing.google_identity import GoogleIdentity

_SERVICE: Final = "google.container.v1.ClusterManager"
_AUDIENCE: Final = "https://container.googleapis.com/"


class Authority:
    """A certificate authority in a file, which may be that of several servers.

    gRPC reads `GRPC_DEFAULT_SSL_ROOTS_FILE_PATH` once in a process, so the servers of a process share one.
    """

    def __init__(self, folder: Path) -> None:
        self._ca = trustme.CA()
        self.file = folder / "authority.pem"
        self._ca.cert_pem.write_to_path(self.file)

    def credentials(self) -> grpc.ServerCredentials:
        """Return the credentials of a server on this machine."""
        issued = self._ca.issue_cert("localhost", "127.0.0.1")
        chain = b"".join(part.bytes() for part in issued.cert_chain_pems)
        return grpc.ssl_server_credentials([(issued.private_key_pem.bytes(), chain)])


@dataclass
class _Fault:
    method: str
    code: grpc.StatusCode
    message: str
    reason: str
    times: int


@dataclass(frozen=True)
class _Call:
    """A request with the place that it names."""

    request: Any
    parts: Mapping[str, str] = field(default_factory=dict)
    """`projects`, `locations`, `clusters`, `nodePools` → name."""


class GkeServer:
    """The GKE API of all projects, with a token service. Use it in a `with` block.

    *folder* gets the files to which `environment` points. *token* is what its service account gets for
    the API servers of its clusters; None: a new one each time.
    """

    def __init__(
        self, folder: Path, *, authority: Authority | None = None, token: str | None = None
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.authority = authority or Authority(folder)
        self.identity = GoogleIdentity(folder, token=token)
        self.clusters: dict[tuple[str, str, str], Any] = {}
        """Project, location and name → `container_v1.Cluster`."""
        self.requests: list[str] = []
        """Method and resource of each request, such as `GetCluster projects/p/locations/l/clusters/c`."""
        self._faults: list[_Fault] = []
        self._lock = threading.Lock()
        self._running = ExitStack()
        self.endpoint = ""
        """`HOST:PORT`, once it runs."""

    def __enter__(self) -> Self:
        # The pool has more threads than the tests have clients.
        server = grpc.server(ThreadPoolExecutor(max_workers=16))
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(_SERVICE, dict(self._handlers())),)
        )
        port = server.add_secure_port("127.0.0.1:0", self.authority.credentials())
        self.endpoint = f"localhost:{port}"
        server.start()
        self._running.callback(lambda: server.stop(grace=None).wait())
        self._running.enter_context(self.identity)
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which Google's libraries, and Kinetic, use this server.

        They must be set before a process uses gRPC for the first time.
        """
        return {
            "GOOGLE_APPLICATION_CREDENTIALS": str(self.identity.file),
            "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(self.authority.file),
            # The variable of gcloud for another address of the API.
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_CONTAINER": f"https://{self.endpoint}/",
        }

    def add(
        self,
        name: str,
        *,
        project: str = "test-project",
        location: str = "us-central1-a",
        server: str = "",
        ca: str = "",
        **fields: Any,
    ) -> None:
        """Add a cluster, or replace it.

        Args:
            name: Its name.
            project: Its project.
            location: Its zone or region.
            server: The URL of its API server; empty: it is being created.
            ca: The certificates of the API server's authority, as PEM.
            fields: Further fields of `container_v1.Cluster`.
        """
        status = container_v1.Cluster.Status
        self.clusters[project, location, name] = container_v1.Cluster(
            **{
                "name": name,
                "id": f"{project}-{location}-{name}",
                "location": location,
                "endpoint": server.removeprefix("https://"),
                "master_auth": {"cluster_ca_certificate": b64encode(ca.encode()).decode()},
                "status": status.RUNNING if server else status.PROVISIONING,
                **fields,
            }
        )

    def fail(
        self,
        method: str,
        code: grpc.StatusCode,
        message: str = "injected",
        *,
        reason: str = "",
        times: int = 1,
    ) -> None:
        """Let the next requests of *method* fail, such as `GetCluster`; *reason* is that of an `ErrorInfo`."""
        with self._lock:
            self._faults.append(_Fault(method, code, message, reason, times))

    def _handlers(self) -> Iterator[tuple[str, grpc.RpcMethodHandler]]:
        api = container_v1
        for name, asked, answer, serve in (
            ("GetCluster", api.GetClusterRequest, api.Cluster, self._cluster),
            ("ListClusters", api.ListClustersRequest, api.ListClustersResponse, self._list),
            ("GetNodePool", api.GetNodePoolRequest, api.NodePool, self._pool),
            ("ListNodePools", api.ListNodePoolsRequest, api.ListNodePoolsResponse, self._pools),
            ("GetServerConfig", api.GetServerConfigRequest, api.ServerConfig, self._config),
        ):
            yield (
                name,
                grpc.unary_unary_rpc_method_handler(
                    self._guarded(name, serve),
                    request_deserializer=asked.deserialize,
                    response_serializer=answer.serialize,
                ),
            )

    def _guarded(
        self, method: str, serve: Callable[[_Call, grpc.ServicerContext], Any]
    ) -> Callable[[Any, grpc.ServicerContext], Any]:
        """Return a handler that notes the request, and checks its credentials and the faults first."""

        def handle(request: Any, context: grpc.ServicerContext) -> Any:
            place = getattr(request, "name", "") or getattr(request, "parent", "")
            names = place.split("/")
            with self._lock:
                self.requests.append(f"{method} {place}")
                fault = next((each for each in self._faults if each.method == method), None)
                if fault is not None:
                    fault.times -= 1
                    if fault.times == 0:
                        self._faults.remove(fault)
            if fault is not None:
                _abort(context, fault.code, fault.message, fault.reason)
            sent = dict(context.invocation_metadata()).get("authorization", "")
            if not self.identity.accepts(str(sent).removeprefix("Bearer "), _AUDIENCE):
                _abort(
                    context,
                    grpc.StatusCode.UNAUTHENTICATED,
                    "Request had invalid authentication credentials.",
                    "ACCESS_TOKEN_TYPE_UNSUPPORTED",
                )
            return serve(_Call(request, dict(zip(names[::2], names[1::2], strict=False))), context)

        return handle

    def _cluster(self, call: _Call, context: grpc.ServicerContext) -> Any:
        parts = call.parts
        found = self.clusters.get((parts["projects"], parts["locations"], parts["clusters"]))
        if found is None:
            _abort(context, grpc.StatusCode.NOT_FOUND, f"Not found: {call.request.name}.")
        return found

    def _list(self, call: _Call, context: grpc.ServicerContext) -> Any:  # noqa: ARG002
        place = call.parts["locations"]
        return container_v1.ListClustersResponse(
            clusters=[
                each
                for (project, location, _), each in self.clusters.items()
                if project == call.parts["projects"] and place in ("-", location)
            ]
        )

    def _pools(self, call: _Call, context: grpc.ServicerContext) -> Any:
        parts = call.parts
        found = self.clusters.get((parts["projects"], parts["locations"], parts["clusters"]))
        if found is None:
            _abort(context, grpc.StatusCode.NOT_FOUND, f"Not found: {call.request.parent}.")
        return container_v1.ListNodePoolsResponse(node_pools=found.node_pools)

    def _pool(self, call: _Call, context: grpc.ServicerContext) -> Any:
        for pool in self._cluster(call, context).node_pools:
            if pool.name == call.parts["nodePools"]:
                return pool
        return _abort(context, grpc.StatusCode.NOT_FOUND, f"Not found: {call.request.name}.")

    def _config(self, call: _Call, context: grpc.ServicerContext) -> Any:  # noqa: ARG002
        version = "1.34.4-gke.1"
        return container_v1.ServerConfig(
            default_cluster_version=version,
            valid_master_versions=[version],
            valid_node_versions=[version],
        )


def _abort(
    context: grpc.ServicerContext, code: grpc.StatusCode, message: str, reason: str = ""
) -> NoReturn:
    """End the call with an error as the real API sends it, with its *reason* in an `ErrorInfo`."""
    details = []
    if reason:
        info = error_details_pb2.ErrorInfo(
            reason=reason, domain="googleapis.com", metadata={"service": "container.googleapis.com"}
        )
        packed = any_pb2.Any()
        packed.Pack(info)
        details.append(packed)
    status = status_pb2.Status(code=code.value[0], message=message, details=details)
    context.abort_with_status(rpc_status.to_status(status))
    raise AssertionError("unreachable: `abort_with_status` raises")
