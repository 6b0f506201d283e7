"""Environment variables that lead pods to a bucket service other than Google's."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from kinetic.errors import ConfigurationError
from kinetic_payload.layout import Env

_VARIABLES: Final = (Env.STORAGE_ENDPOINT, "STORAGE_EMULATOR_HOST", "API_ENDPOINT_OVERRIDE")
"""The first variable that is set is used, here and in pods."""


def storage_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variable of *environment* that names a bucket service, for pods; empty if none does.

    Raises:
        ConfigurationError: The address is a loopback address, which pods cannot reach.
    """
    for name in _VARIABLES:
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
