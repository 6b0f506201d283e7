"""Connect to a cluster: from a target to the services of its jobs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kinetic.errors import ConfigurationError

if TYPE_CHECKING:
    from kinetic.jobs.services import Services
    from kinetic.settings.settings import Settings
    from kinetic.target import Target
    from kinetic_k8s.cluster.cluster import Cluster
    from kinetic_payload.stores.store import Location


def connect(target: Target, location: Location, settings: Settings) -> Services:
    """Return the services of the jobs in *target*, which sign with the key of its namespace.

    No request is sent yet.

    Raises:
        ConfigurationError: The target names no context of a kubeconfig.
        UnknownContextError: The kubeconfig has no such context.
    """
    if target.kube_context is None:
        raise ConfigurationError(
            "The backend 'gke' needs a context of your kubeconfig, and none is named.",
            hint="Set KINETIC_KUBE_CONTEXT, or kube_context in the profile; `kubectl config "
            "get-contexts` lists them. A cluster is not found by its name yet. To run on this machine "
            "instead: backend='local' or KINETIC_BACKEND=local.",
        )
    from kinetic.backends.gke.backend import GkeBackend
    from kinetic.backends.gke.key import ClusterKey
    from kinetic.jobs.services import Services, key_signer_of, open_at
    from kinetic.settings.settings import environment

    variables = environment()
    cluster = _cluster(target.kube_context, target.namespace, variables.get("KUBECONFIG"), settings)
    home = Path(settings.home.value)
    store = open_at(location, home)
    key_signer = key_signer_of(location, ClusterKey(cluster))
    backend = GkeBackend(cluster, store, home, key_signer, variables)
    return Services(store, backend, key_signer=key_signer)


def _cluster(context: str, namespace: str, kubeconfig: str | None, settings: Settings) -> Cluster:
    """Return the cluster of *context*; if the kubeconfig lacks that context, the cluster of the settings."""
    from kinetic_k8s.cluster.connect import connect as connect_cluster
    from kinetic_k8s.errors import UnknownContextError

    try:
        return connect_cluster(context, namespace=namespace or None, kubeconfig=kubeconfig)
    except UnknownContextError as error:
        here = settings.kube_context.value
        if here in (None, context):
            hint = "Set KINETIC_KUBE_CONTEXT to the context that leads to that cluster here."
            raise UnknownContextError(error.message, hint=f"{error.hint} {hint}".strip()) from error
        return connect_cluster(here, namespace=namespace or None, kubeconfig=kubeconfig)
