"""The cluster of the pod in which this process runs, with the pod's service account."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from kinetic_k8s.cluster.connection import Access, Credentials
from kinetic_k8s.errors import NotAuthenticatedError, UnknownClusterError

ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/"""
_READ_AGAIN: Final = timedelta(seconds=60)
"""The kubelet replaces the token when 80 % of its life have passed."""


def access_in_pod(
    environment: Mapping[str, str], *, namespace: str | None = None, account: Path = ACCOUNT
) -> Access:
    """Return the address of the pod's own cluster, and how to authenticate as its service account.

    Args:
        environment: The pod's environment.
        namespace: None: the pod's own.
        account: The folder with the token, the certificates and the namespace of the service account.

    Raises:
        UnknownClusterError: This is no pod, or it has no service account.
    """
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
    return Access(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        credentials=lambda: _credentials(account / "token"),
        namespace=namespace or own,
        ca=ca,
        title="the cluster of this pod",
    )


def _credentials(path: Path) -> Credentials:
    try:
        token = path.read_text(encoding="ascii").strip()
    except OSError as error:
        raise NotAuthenticatedError(
            f"The token of this pod's service account cannot be read: {error}."
        ) from error
    return Credentials(
        headers={"Authorization": f"Bearer {token}"}, renew_at=datetime.now(UTC) + _READ_AGAIN
    )
