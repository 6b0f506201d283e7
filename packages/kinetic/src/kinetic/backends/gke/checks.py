"""Refuse what the backend `gke` cannot run, before anything is packaged."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from kinetic.errors import ConfigurationError, InvalidRequestError
from kinetic_payload.layout import Env

if TYPE_CHECKING:
    from kinetic.submit.request import JobRequest
    from kinetic_payload.stores.store import Location

_STORAGE_VARIABLES: Final = (Env.STORAGE_ENDPOINT, "STORAGE_EMULATOR_HOST")
"""The first variable that is set is used, here and in pods."""


def check_request(request: JobRequest, store: Location) -> None:
    """Refuse a request that this version cannot run on a cluster.

    Raises:
        InvalidRequestError: It cannot run the request; the hint says what to use instead.
    """
    if store.kind != "gs":
        raise InvalidRequestError(
            f"Pods cannot reach the store {store}, which is a folder of this machine "
            f"(from: {request.settings.store.source}).",
            hint="Set KINETIC_STORE=gs://BUCKET.",
        )
    if request.volumes:
        from kinetic.mount_paths import check_volumes
        from kinetic_k8s.manifests.pod import WORKSPACE
        from kinetic_payload.layout import MOUNTS

        check_volumes(request.volumes, workspaces=(WORKSPACE, MOUNTS))


def storage_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variable of *environment* that names a bucket service, for pods; empty if none does.

    Raises:
        ConfigurationError: The address is a loopback address, which pods cannot reach.
    """
    for name in _STORAGE_VARIABLES:
        if address := environment.get(name):
            if _is_loopback(address):
                raise ConfigurationError(
                    f"{name} is {address!r}: no pod reaches a server on this machine's loopback.",
                    hint="Let the server listen on an address that pods reach, and name that.",
                )
            return {name: address}
    return {}


def _is_loopback(address: str) -> bool:
    host = urlsplit(address if "//" in address else f"//{address}").hostname or ""
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
    return ip.is_loopback or ip.is_unspecified
