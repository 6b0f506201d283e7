"""Connect to a cluster: by a context of a kubeconfig, by its name on GKE, or from inside a pod.

A cluster is a value. Nothing here depends on the kubeconfig's current context unless it is asked for.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

from kinetic_k8s.cluster.client import ApiServer
from kinetic_k8s.cluster.connection import Access, Connection, Credentials
from kinetic_k8s.errors import NotAuthenticatedError, UnknownClusterError

if TYPE_CHECKING:
    from kinetic_k8s.cluster.gke import GkeCluster

ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/"""
_READ_AGAIN: Final = timedelta(seconds=60)
"""The kubelet replaces the token when 80 % of its life have passed."""


def connect(
    context: str | None = None,
    *,
    namespace: str | None = None,
    kubeconfig: str | None = None,
) -> ApiServer:
    """Return the cluster that a context of the kubeconfig names. No request is sent yet.

    Args:
        context: The context; None: the kubeconfig's current one.
        namespace: None: the context's own, or `default`.
        kubeconfig: Path, or several as in `KUBECONFIG`; None: `KUBECONFIG`, or `~/.kube/config`.

    Raises:
        UnknownContextError: There is no such context, or no readable kubeconfig.
    """
    from kinetic_k8s.cluster.kubeconfig import access_of

    access = access_of(context, namespace=namespace, kubeconfig=kubeconfig)
    return _shared(access, ("context", access.context, kubeconfig))


def connect_to_gke(
    project: str,
    location: str,
    name: str,
    *,
    namespace: str | None = None,
    endpoint: str | None = None,
) -> ApiServer:
    """Return a cluster of GKE, found by its name with Application Default Credentials.

    The first call of a process asks the GKE API for the cluster's address; later ones know it.

    Args:
        project: The Google Cloud project.
        location: The cluster's zone or region.
        name: The cluster's name.
        namespace: None: `default`.
        endpoint: `HOST[:PORT]` of the GKE API; None: Google's own.

    Raises:
        UnknownClusterError: There is no such cluster; the hint names those that exist.
        NotAuthenticatedError: There are no credentials, or they have expired.
        NotPermittedError: The user may not see the project's clusters; the hint names the role.
        ServiceDisabledError: The GKE API is not enabled in the project.
        ClusterUnreachableError: The GKE API did not respond, or the cluster has no address yet.
    """
    access = gke_cluster(project, location, name, endpoint=endpoint).access(namespace or "default")
    return _shared(access, ("gke", endpoint, project, location, name))


def gke_cluster(
    project: str, location: str, name: str, *, endpoint: str | None = None
) -> GkeCluster:
    """Return the facts about a cluster of GKE; see `connect_to_gke`."""
    # Imported here, because importing Google's client takes 0.5 s.
    from kinetic_k8s.cluster.gke import gke_api

    return gke_api(endpoint).cluster(project, location, name)


def connect_in_pod(environment: Mapping[str, str], *, namespace: str | None = None) -> ApiServer:
    """Return the cluster of the pod in which this process runs, with the pod's service account.

    Args:
        environment: This process's environment.
        namespace: None: the pod's own.

    Raises:
        UnknownClusterError: This is no pod, or it has no service account.
    """
    access = access_in_pod(environment, namespace=namespace)
    return _shared(access, ("pod",))


_connections: WeakValueDictionary[tuple[object, ...], Connection] = WeakValueDictionary()
_guard = threading.Lock()


def _shared(access: Access, key: tuple[object, ...]) -> ApiServer:
    """Return the cluster at *access*; with the same *key* and address, all share one connection.

    It is closed with the last of them.
    """
    complete = (*key, access.server, access.ca, access.verify, access.proxy, access.server_name)
    with _guard:
        connection = _connections.get(complete)
        if connection is None:
            connection = _connections[complete] = Connection(access)
    return ApiServer(access, connection=connection)


def access_in_pod(
    environment: Mapping[str, str], *, namespace: str | None = None, account: Path = ACCOUNT
) -> Access:
    """Return how the pod's own cluster is reached; see `connect_in_pod`. *account* is its folder of files."""
    host = environment.get("KUBERNETES_SERVICE_HOST", "")
    port = environment.get("KUBERNETES_SERVICE_PORT") or "443"
    if not host:
        raise UnknownClusterError(
            "This process does not run in a pod: KUBERNETES_SERVICE_HOST is not set."
        )
    try:
        ca = (account / "ca.crt").read_text(encoding="ascii")
        own = (account / "namespace").read_text(encoding="ascii").strip()
    except OSError as error:
        raise UnknownClusterError(
            f"This pod has no service account for the API server: {error}.",
            hint="Leave automountServiceAccountToken: false out of the pod and of its service account.",
        ) from error

    def credentials() -> Credentials:
        try:
            token = (account / "token").read_text(encoding="ascii").strip()
        except OSError as error:
            raise NotAuthenticatedError(
                f"The token of this pod's service account cannot be read: {error}."
            ) from error
        headers = {"Authorization": f"Bearer {token}"}
        return Credentials(headers=headers, renew_at=datetime.now(UTC) + _READ_AGAIN)

    return Access(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        credentials=credentials,
        namespace=namespace or own,
        ca=ca,
        title="the cluster of this pod",
    )
