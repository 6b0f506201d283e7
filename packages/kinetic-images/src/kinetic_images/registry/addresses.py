"""Addresses of registries, and which of them are reached without encryption."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from kinetic_images.registry.names import DOCKER_HUB

_DOCKER_HUB_API: Final = "registry-1.docker.io"
_MACHINE_FILE: Final = "/etc/docker/daemon.json"


class Addresses:
    """Addresses of registries: `https`, except for hosts that are named as insecure.

    Plain `http` is used for this machine (`localhost`, 127.0.0.0/8, ::1), as docker does, and for hosts
    in `insecure-registries` of the docker daemon's configuration: of the machine, of Docker Desktop, or of a
    rootless daemon. Networks there apply to addresses, not to names. Certificates are always verified.
    """

    def __init__(self, environ: Mapping[str, str], *, files: Iterable[Path] | None = None) -> None:
        self._insecure = _insecure_in(_daemon_files(environ) if files is None else files)

    def base(self, host: str) -> str:
        """Return the address of the API of *host*, a registry as `names.Reference.host` has it."""
        if host == DOCKER_HUB:
            host = _DOCKER_HUB_API
        return f"{'http' if self.is_plain(host) else 'https'}://{host}"

    def is_plain(self, host: str) -> bool:
        """Return whether *host*, which may have a port, is reached without encryption."""
        name = (urlsplit(f"//{host}").hostname or "").lower()
        if name == "localhost" or _is_loopback(name):
            return True
        return any(_matches(entry, host.lower(), name) for entry in self._insecure)

    def permits(self, url: str) -> bool:
        """Return whether a registry's response may lead to *url*: it is encrypted, or its host needs not be."""
        try:
            parts = urlsplit(url)
            _ = parts.port  # It raises the error.
        except ValueError:
            return False
        if not parts.hostname:
            return False
        host = parts.netloc.rpartition("@")[2]
        return parts.scheme == "https" or (parts.scheme == "http" and self.is_plain(host))


def shown(url: str) -> str:
    """Return *url* without what may be a secret: a user, a password, a signature."""
    before, separator, rest = url.partition("://")
    place, slash, path = (rest if separator else before).partition("/")
    path = path.partition("?")[0].partition("#")[0]
    place = place.rpartition("@")[2].partition("?")[0]
    return f"{before if separator else ''}{separator}{place}{slash}{path}"[:300]


def _daemon_files(environ: Mapping[str, str]) -> list[Path]:
    home = environ.get("HOME")
    own = environ.get("XDG_CONFIG_HOME") or (f"{home}/.config" if home else None)
    files = [Path(_MACHINE_FILE)]
    files += [Path(home, ".docker", "daemon.json")] if home else []
    return files + ([Path(own, "docker", "daemon.json")] if own else [])


def _insecure_in(files: Iterable[Path]) -> tuple[str, ...]:
    found: list[str] = []
    for file in files:
        # The daemon reports what is wrong with its configuration; here, it only adds exceptions.
        with suppress(OSError, ValueError, RecursionError):
            config: Any = json.loads(file.read_text(encoding="utf-8"))
            listed = config.get("insecure-registries") if isinstance(config, dict) else None
            if isinstance(listed, list):
                found += [entry.lower() for entry in listed if isinstance(entry, str)]
    return tuple(entry.removeprefix("http://").rstrip("/") for entry in found)


def _matches(entry: str, host: str, name: str) -> bool:
    if "/" in entry:
        with suppress(ValueError):
            return ip_address(name) in ip_network(entry, strict=False)
        return False
    return entry == host


def _is_loopback(name: str) -> bool:
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False
