"""Addresses of registries, and which of them are reached without encryption."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from kinetic_images.registry.names import DOCKER_HUB
from kinetic_payload.http.session import origin

_DOCKER_HUB_API: Final = "registry-1.docker.io"
_MACHINE_FILE: Final = "/etc/docker/daemon.json"


class _Daemon(msgspec.Struct, rename="kebab"):
    insecure_registries: list[str] = []


class Addresses:
    """Addresses of registries: `https`, except for hosts that are named as insecure.

    Plain `http` is used for this machine (`localhost`, 127.0.0.0/8, ::1), as docker does, and for hosts
    in `insecure-registries` of the docker daemon's configuration: of the machine, of Docker Desktop, or of a
    rootless daemon. Networks there apply to addresses, not to names. Certificates are always verified.
    """

    def __init__(self, environ: Mapping[str, str], *, files: Iterable[Path] | None = None) -> None:
        entries: list[str] = []
        if files is None:
            home = environ.get("HOME")
            own = environ.get("XDG_CONFIG_HOME") or (f"{home}/.config" if home else None)
            users = [f"{home}/.docker" if home else None, f"{own}/docker" if own else None]
            files = [Path(_MACHINE_FILE), *(Path(each, "daemon.json") for each in users if each)]
        for file in files:
            # The daemon reports what is wrong with its configuration; here, it only adds exceptions.
            with suppress(OSError, ValueError, msgspec.DecodeError, RecursionError):
                entries += msgspec.json.decode(file.read_bytes(), type=_Daemon).insecure_registries
        self._hosts = {entry.lower().removeprefix("http://").rstrip("/") for entry in entries}
        self._networks = [ip_network("127.0.0.0/8"), ip_network("::1")]
        for entry in self._hosts:
            with suppress(ValueError):
                self._networks += [ip_network(entry, strict=False)] if "/" in entry else []

    def base(self, host: str) -> str:
        """Return the address of the API of *host*, a registry as `names.Reference.host` has it."""
        if host == DOCKER_HUB:
            host = _DOCKER_HUB_API
        return f"{'http' if self.is_plain(host) else 'https'}://{host}"

    def is_plain(self, host: str) -> bool:
        """Return whether *host*, which may have a port, is reached without encryption."""
        name = (urlsplit(f"//{host}").hostname or "").lower()
        if name == "localhost" or host.lower() in self._hosts:
            return True
        with suppress(ValueError):  # It is a name.
            return any(ip_address(name) in network for network in self._networks)
        return False

    def permits(self, url: str) -> bool:
        """Return whether a registry's response may lead to *url*: it is encrypted, or its host needs not be."""
        scheme, host, _ = origin(url)
        place = urlsplit(url).netloc.rpartition("@")[2] if host else ""
        return bool(host) and (scheme == "https" or (scheme == "http" and self.is_plain(place)))


def shown(url: str) -> str:
    """Return *url* without what may be a secret: a user, a password, a signature."""
    before, separator, rest = url.partition("://")
    place, slash, path = (rest if separator else before).partition("/")
    path = path.partition("?")[0].partition("#")[0]
    place = place.rpartition("@")[2].partition("?")[0]
    return f"{before if separator else ''}{separator}{place}{slash}{path}"[:300]
