"""HTTP proxies, as the environment or a configuration file names them."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping
from contextlib import suppress
from ipaddress import ip_address, ip_network
from typing import Final
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, getproxies_environment, proxy_bypass

from kinetic_payload.errors import InvalidRequestError


def proxy_of_environment(server: str, environ: Mapping[str, str] | None = None) -> str | None:
    """Return the proxy through which the system's settings lead to *server*; None: there is none.

    *environ* replaces the environment of this process, and all other settings of the system.

    As for `kubectl`, addresses of this machine have none, and `no_proxy` may contain networks such as
    `10.0.0.0/8`, and ports.

    Raises:
        InvalidRequestError: The proxy is of a kind that is not supported, or its address is unusable.
    """
    address = urlsplit(server)
    host = (address.hostname or "").lower()
    if environ is None:
        found = getproxies()
    else:  # By the rules of `urllib.request`: names in lower case have precedence.
        lower = {name: value for name, value in environ.items() if name == name.lower()}
        named = {name.lower(): value for name, value in environ.items()} | lower
        found = {
            name.removesuffix("_proxy"): value
            for name, value in named.items()
            if name.endswith("_proxy") and value
        }
    proxy = found.get(address.scheme)
    if not proxy or host == "localhost" or (_is_address(host) and ip_address(host).is_loopback):
        return None
    if environ is None and not getproxies_environment() and proxy_bypass(host):
        return None  # They are the settings of the system.
    port = address.port or (443 if address.scheme == "https" else 80)
    if any(_matches(entry.strip().lower(), host, port) for entry in found.get("no", "").split(",")):
        return None
    return proxy_url(proxy, f"{address.scheme}_proxy of this environment")


def proxy_url(text: str, named_by: str) -> str:
    """Return the URL of the proxy *text*; without a scheme, it is `http`.

    Raises:
        InvalidRequestError: It is of a kind that is not supported, or its address is unusable. *named_by* is
            in the message; a password is not.
    """
    url = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(url)
        shown, usable = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}", bool(parts.hostname)
        _ = parts.port  # It raises the error.
    except ValueError:
        shown, usable = url.rpartition("@")[2], False
    if not usable:
        raise InvalidRequestError(
            f"The proxy {shown!r}, from {named_by}, has no valid host and port.",
            hint="Write it as http://HOST:PORT.",
        )
    if parts.scheme not in ("http", "https"):
        raise InvalidRequestError(
            f"The proxy {shown!r}, from {named_by}, is not an HTTP proxy; others are not supported.",
            hint="Name one as http://HOST:PORT, or remove it and connect in another way, such as a VPN.",
        )
    return url


def proxy_headers(proxy: str) -> dict[str, str]:
    """Return the headers that a request to *proxy* needs: the user and the password of its URL."""
    parts = urlsplit(proxy)
    if parts.username is None:
        return {}
    user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {"Proxy-Authorization": f"Basic {b64encode(user.encode()).decode()}"}


def _matches(entry: str, host: str, port: int) -> bool:
    """Return whether *entry* of `no_proxy` excepts *host*, by the rules of Go's `httpproxy`.

    `a.b` also excepts the hosts in `a.b`; `.a.b` and `*.a.b` except only these.
    """
    if entry == "*":
        return True
    with suppress(ValueError):
        return _is_in(host, entry)
    name, only = entry, ""
    if found := _WITH_PORT.fullmatch(entry):
        name, only = found[1], found[2]
    if not name or only not in ("", str(port)):
        return False
    with suppress(ValueError):
        return _is_in(host, name.strip("[]"))
    if _is_address(host):
        return False
    if name.startswith("*."):
        name = name[1:]
    return host.endswith(f".{name.removeprefix('.')}") or host == name


def _is_in(host: str, network: str) -> bool:
    """Return whether *host* is an address in *network*, which may be one address.

    Raises:
        ValueError: *network* is neither.
    """
    found = ip_network(network, strict=False)
    return _is_address(host) and ip_address(host) in found


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


_WITH_PORT: Final = re.compile(r"(\[.*\]|[^:]*):([^:]*)")
