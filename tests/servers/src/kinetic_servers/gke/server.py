"""The GKE API as a gRPC server over TLS: clusters, with their node pools."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Self

import grpc
import trustme
from google.cloud import container_v1

from kinetic_servers.gke.google_identity import GoogleIdentity
from kinetic_servers.rpc import Method, RpcServer

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


class GkeServer(RpcServer):
    """The GKE API of all projects, with a token service. Use it in a `with` block.

    *folder* gets the files to which `environment` points. *token* is what its service account gets for
    the API servers of its clusters; None: a new one each time. `requests` are such as
    `GetCluster projects/p/locations/l/clusters/c`.
    """

    domain = "container.googleapis.com"

    def __init__(
        self, folder: Path, *, authority: Authority | None = None, token: str | None = None
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.authority = authority or Authority(folder)
        super().__init__(self.authority.credentials())
        self.identity = GoogleIdentity(folder, token=token)
        self.clusters: dict[tuple[str, str, str], Any] = {}
        """Project, location and name → `container_v1.Cluster`."""

    def __enter__(self) -> Self:
        super().__enter__()
        self._running.enter_context(self.identity)
        return self

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

    def methods(self) -> Iterator[Method]:
        """Return what Kinetic calls."""
        api = container_v1
        for name, asked, answer, serve in (
            ("GetCluster", api.GetClusterRequest, api.Cluster, self._cluster),
            ("ListClusters", api.ListClustersRequest, api.ListClustersResponse, self._list),
        ):
            yield Method(f"{_SERVICE}/{name}", asked, answer, serve)

    def describe(self, method: str, request: Any) -> str:
        return f"{method} {_place(request)}"

    def authenticate(self, context: grpc.ServicerContext) -> None:
        """End a call without a token of the token service."""
        sent = dict(context.invocation_metadata()).get("authorization", "")
        if not self.identity.accepts(str(sent).removeprefix("Bearer "), _AUDIENCE):
            self.abort(
                context,
                grpc.StatusCode.UNAUTHENTICATED,
                "Request had invalid authentication credentials.",
                "ACCESS_TOKEN_TYPE_UNSUPPORTED",
            )

    def _cluster(self, request: Any, context: grpc.ServicerContext) -> Any:
        parts = _parts(request)
        found = self.clusters.get((parts["projects"], parts["locations"], parts["clusters"]))
        if found is None:
            self.abort(context, grpc.StatusCode.NOT_FOUND, f"Not found: {_place(request)}.")
        return found

    def _list(self, request: Any, context: grpc.ServicerContext) -> Any:
        parts = _parts(request)
        return container_v1.ListClustersResponse(
            clusters=[
                each
                for (project, location, _), each in self.clusters.items()
                if project == parts["projects"] and parts["locations"] in ("-", location)
            ]
        )


def _place(request: Any) -> str:
    return getattr(request, "name", "") or getattr(request, "parent", "")


def _parts(request: Any) -> Mapping[str, str]:
    """Return the names in the place: `projects`, `locations`, `clusters` → name."""
    names = _place(request).split("/")
    return dict(zip(names[::2], names[1::2], strict=False))
