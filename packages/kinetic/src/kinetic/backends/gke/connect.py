"""Connect to a cluster: from a target to the services of its jobs."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from kinetic.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kinetic.jobs.services import Services
    from kinetic.settings.settings import Settings
    from kinetic.target import Target
    from kinetic_k8s.cluster.client import ApiServer
    from kinetic_k8s.cluster.gke import GkeCluster
    from kinetic_payload.stores.store import Location

    Found = tuple[ApiServer, GkeCluster | None]
    """A cluster, and what the GKE API knows about it if it was found by its name on GKE."""

_LATEST: Final[deque[ApiServer]] = deque(maxlen=8)
"""The clusters of the latest calls of `connect`. Their connections stay open, so that a program which submits
again neither connects nor authenticates anew."""
GKE_ENDPOINT: Final = "CLOUDSDK_API_ENDPOINT_OVERRIDES_CONTAINER"
"""The variable with which `gcloud`, too, uses another address of the GKE API."""


def connect(target: Target, location: Location, settings: Settings) -> Services:
    """Return the services of the jobs in *target*, which sign with the key of its namespace.

    The cluster is found by the first of these that *target* or *settings* name: a context of the kubeconfig;
    a project, with zone and name; the pod in which this process runs. Only for a name the GKE API is asked,
    once per process.

    Raises:
        ConfigurationError: None of these is named.
        UnknownContextError: The kubeconfig has no such context.
        UnknownClusterError: The project has no such cluster; the hint names those that exist.
    """
    from kinetic.backends.gke.backend import ClusterBackend
    from kinetic.backends.gke.key import ClusterKey
    from kinetic.jobs.services import Services, key_signer_of, open_at
    from kinetic.settings.settings import environment

    variables = environment()
    cluster, gke = find_cluster(settings, target, variables)
    _LATEST.append(cluster)
    home = Path(settings.home.value)
    store = open_at(location)
    key_signer = key_signer_of(location, ClusterKey(cluster))
    backend = ClusterBackend(cluster, store, home, key_signer, variables, gke=gke)
    return Services(store, backend, key_signer=key_signer)


def find_cluster(
    settings: Settings,
    target: Target | None = None,
    variables: Mapping[str, str] | None = None,
) -> Found:
    """Return the cluster of *target*; what that does not name, or all of it, is taken from *settings*.

    A context in the record of a job may not exist on this machine. Then the cluster is that of the settings.
    """
    from kinetic.settings.settings import environment
    from kinetic.target import Target, is_in_pod
    from kinetic_k8s.cluster.connect import connect as connect_by_context
    from kinetic_k8s.cluster.connect import connect_in_pod, connect_to_gke, gke_cluster
    from kinetic_k8s.errors import UnknownContextError

    variables, here = variables or environment(), Target.in_settings(settings)
    target = target or here
    namespace = target.namespace or None
    for place in (target, here):
        if place.kube_context is not None:
            try:
                kubeconfig = variables.get("KUBECONFIG")
                cluster = connect_by_context(
                    place.kube_context, namespace=namespace, kubeconfig=kubeconfig
                )
                return cluster, None
            except UnknownContextError as error:
                if here.named and place.kube_context != here.kube_context:
                    continue
                hint = (
                    "Set KINETIC_KUBE_CONTEXT to the context that leads to that cluster here, or "
                )
                hint += "KINETIC_PROJECT, KINETIC_ZONE and KINETIC_CLUSTER to find it by its name."
                hint = f"{error.hint or ''} {hint}".lstrip()
                raise UnknownContextError(error.message, hint=hint) from error
        if place.project is not None:
            name = (place.project, place.zone, place.cluster)
            endpoint = gke_endpoint(variables)
            cluster = connect_to_gke(*name, namespace=namespace, endpoint=endpoint)
            # Known by now: this sends no request.
            return cluster, gke_cluster(*name, endpoint=endpoint)
    if is_in_pod(variables):
        # If nobody named a namespace, it is the pod's own.
        if target == here and settings.namespace.is_default:
            namespace = None
        return connect_in_pod(variables, namespace=namespace), None
    raise ConfigurationError(
        "No cluster is named, and jobs with backend='gke' or 'pathways' need one.",
        hint="Set KINETIC_PROJECT, and KINETIC_ZONE and KINETIC_CLUSTER if they are not the defaults. Or "
        "name a context of your kubeconfig: KINETIC_KUBE_CONTEXT. To run on this machine instead: "
        "backend='local' or KINETIC_BACKEND=local.",
    )


def gke_endpoint(variables: Mapping[str, str]) -> str | None:
    """Return `HOST[:PORT]` of the GKE API that *variables* name; None: Google's own."""
    named = variables.get(GKE_ENDPOINT)
    return urlsplit(named).netloc or None if named else None
