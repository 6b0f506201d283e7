"""Errors of accelerators, manifests and clusters."""

from __future__ import annotations

from kinetic_payload.errors import (
    InvalidRequestError as InvalidRequestError,
)
from kinetic_payload.errors import (
    KineticError,
    LoginRequiredError,
    UnavailableError,
)


class UnknownAcceleratorError(InvalidRequestError):
    """There is no accelerator of that name, count or topology; the hint names similar ones."""


class UnsupportedWorkloadError(InvalidRequestError):
    """The accelerator exists, but this version cannot render a workload for it."""


class UnknownContextError(InvalidRequestError):
    """The kubeconfig has no such context, or cannot be read."""


class ClusterError(KineticError):
    """A request to a cluster failed."""


class UnknownClusterError(ClusterError, InvalidRequestError):
    """There is no cluster of that name and location; the hint names those that exist."""


class ClusterChangedError(ClusterError):
    """The context by which a cluster was found leads elsewhere now."""


class ClusterUnreachableError(ClusterError, UnavailableError):
    """The API server did not respond within the time limit, or only with transient errors."""

    retry_after = 0.0
    """Seconds after which the server asked for the next request (429, 503); 0: it named none."""


class NotAuthenticatedError(ClusterError, LoginRequiredError):
    """The API server does not accept the credentials (401), or there are none."""


class NotPermittedError(ClusterError, PermissionError):
    """The user is authenticated, but has no role that permits the request (403)."""

    verb = ""
    """As a role names it: `get`, `list`, `watch`, `create`, `patch`, `delete`."""
    resource = ""
    """As a role names it: `jobs.batch`, `pods/log`."""
    namespace = ""
    """Empty for resources without a namespace."""


class ServiceDisabledError(ClusterError):
    """The GKE API is not enabled in the project."""


class RefusedError(ClusterError):
    """A policy of the cluster refused the object: a quota, a limit, a webhook (403)."""


class ConflictError(ClusterError):
    """The object is not in the state that the request expects (409)."""


class AlreadyExistsError(ConflictError):
    """An object of that name already exists (409)."""


class InvalidManifestError(ClusterError, ValueError):
    """The API server does not accept the manifest (400, 422)."""


class KindNotServedError(ClusterError, LookupError):
    """The cluster does not serve that kind of object: an add-on is missing (404)."""


class NamespaceNotFoundError(ClusterError, LookupError):
    """The namespace does not exist (404)."""


class ObjectGoneError(ClusterError, LookupError):
    """The object that a request names does not exist, or no longer exists (404)."""


class LogNotReadyError(ClusterError):
    """The container has no log: it has not started yet, or never will (400)."""


class PortRefusedError(ClusterError, ConnectionError):
    """Nothing listens on the port of a pod."""


class StillThereError(ClusterError, TimeoutError):
    """A deleted object still exists after the time limit."""
