"""Errors of accelerators, manifests and clusters."""

from __future__ import annotations

from kinetic_payload.errors import InvalidRequestError, KineticError, UnavailableError

__all__ = [
    "AlreadyExistsError",
    "ClusterError",
    "ClusterUnreachableError",
    "ConflictError",
    "InvalidManifestError",
    "InvalidRequestError",
    "KindNotServedError",
    "LogNotReadyError",
    "NamespaceNotFoundError",
    "NotAuthenticatedError",
    "NotPermittedError",
    "ObjectGoneError",
    "RefusedError",
    "StillThereError",
    "UnknownAcceleratorError",
    "UnknownContextError",
    "UnsupportedWorkloadError",
]


class UnknownAcceleratorError(InvalidRequestError):
    """No accelerator of that name, count or topology; the hint names the nearest that exist."""


class UnsupportedWorkloadError(InvalidRequestError):
    """The accelerator exists, but this version cannot render a workload for it."""


class UnknownContextError(InvalidRequestError):
    """The kubeconfig has no such context, or cannot be read."""


class ClusterError(KineticError):
    """A request to a cluster failed."""


class ClusterUnreachableError(ClusterError, UnavailableError):
    """The API server did not respond within the time limit, or only with errors that pass."""


class NotAuthenticatedError(ClusterError):
    """The API server does not accept the credentials (401), or there are none."""


class NotPermittedError(ClusterError, PermissionError):
    """The user is known, and has no role that permits the request (403)."""

    verb = ""
    """As in a role: `get`, `list`, `watch`, `create`, `patch`, `delete`."""
    resource = ""
    """As in a role: `jobs.batch`, `pods/log`."""
    namespace = ""
    """Empty for resources that have none."""


class RefusedError(ClusterError):
    """A policy of the cluster refused the object: a quota, a limit, a webhook (403)."""


class ConflictError(ClusterError):
    """The object is not in the state that the request expects (409)."""


class AlreadyExistsError(ConflictError):
    """An object of that name exists already (409)."""


class InvalidManifestError(ClusterError, ValueError):
    """The API server does not accept the manifest (400, 422)."""


class KindNotServedError(ClusterError, LookupError):
    """The cluster does not serve that kind of object: an add-on is missing (404)."""


class NamespaceNotFoundError(ClusterError, LookupError):
    """The namespace does not exist (404)."""


class ObjectGoneError(ClusterError, LookupError):
    """The object that a request names does not exist, or not any more (404)."""


class LogNotReadyError(ClusterError):
    """The container has no log yet: it has not started (400)."""


class StillThereError(ClusterError, TimeoutError):
    """A deleted object still exists after the time limit."""
