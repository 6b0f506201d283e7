"""The service account that a job's pods use."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kinetic.backends.gke.timeouts import with_short_timeout
from kinetic.errors import ConfigurationError
from kinetic_k8s.errors import NotPermittedError

if TYPE_CHECKING:
    from kinetic_k8s.cluster.client import ApiServer

PREFERRED: Final = "kinetic"
"""The service account that pods use if it exists."""
DEFAULT: Final = "default"
"""The service account that every namespace has."""


@dataclass(frozen=True)
class ServiceAccount:
    """The service account of a job's pods."""

    name: str | None
    """None: the default of the namespace."""
    warning: str | None = None
    """For the user."""


_found: dict[tuple[str, str, str | None], ServiceAccount] = {}
_lock = threading.Lock()


def service_account_of(cluster: ApiServer, named: str | None) -> ServiceAccount:
    """Return the service account that the setting *named*, or else `kinetic`, or else the default.

    A process looks at most once for each namespace.

    Raises:
        ConfigurationError: The named service account does not exist.
        ClusterError: The cluster cannot be queried.
    """
    if named == DEFAULT:
        return ServiceAccount(None)
    where = cluster.identity
    key = (where.server, where.namespace, named)
    with _lock:
        if key not in _found:
            _found[key] = _look(cluster, named)
        return _found[key]


def _look(cluster: ApiServer, named: str | None) -> ServiceAccount:
    namespace = cluster.identity.namespace
    try:
        found = with_short_timeout(cluster).get("ServiceAccount", named or PREFERRED, brief=True)
    except NotPermittedError:
        # A named one is used anyway: if it does not exist, the status of the job reports that.
        return ServiceAccount(named, None if named else _warning(namespace, "may not be looked up"))
    if found is not None:
        return ServiceAccount(named or PREFERRED)
    if named is not None:
        raise ConfigurationError(
            f"There is no service account {named!r} in {cluster.identity}.",
            hint=f"Create it (kubectl create serviceaccount {named} --namespace={namespace}), or set "
            f"KINETIC_SERVICE_ACCOUNT, or service_account in the profile, to another one; {DEFAULT!r} "
            "always exists.",
        )
    return ServiceAccount(None, _warning(namespace, "does not exist"))


def _warning(namespace: str, why: str) -> str:
    return (
        f"pods run as the service account {DEFAULT!r}, because {PREFERRED!r} {why} in the namespace "
        f"{namespace!r}; KINETIC_SERVICE_ACCOUNT names the one to use"
    )
