"""HTTP proxies, as a kubeconfig or the environment names them."""

from __future__ import annotations

from base64 import b64encode
from ipaddress import ip_address, ip_network
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from kinetic_k8s.errors import InvalidRequestError


def proxy_of_environment(server: str) -> str | None:
    """Return the proxy through which the system's settings lead to *server*; None: there is none.

    As for `kubectl`, `no_proxy` may contain networks such as `10.0.0.0/8`.

    Raises:
        InvalidRequestError: The proxy is of a kind that is not supported, or its address is unusable.
    """
    address = urlsplit(server)
    host, found = address.hostname or "", getproxies()
    proxy = found.get(address.scheme)
    if not proxy or proxy_bypass(host) or _is_in_networks(host, found.get("no", "")):
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
            hint="Name one as http://HOST:PORT, or remove it and reach the cluster in another way, such as "
            "a VPN.",
        )
    return url


def proxy_headers(proxy: str) -> dict[str, str]:
    """Return the headers that a request to *proxy* needs: the user and the password of its URL."""
    parts = urlsplit(proxy)
    if parts.username is None:
        return {}
    user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {"Proxy-Authorization": f"Basic {b64encode(user.encode()).decode()}"}


def _is_in_networks(host: str, listed: str) -> bool:
    """Return whether *host* is an address in one of the *listed* networks."""
    try:
        address = ip_address(host)
    except ValueError:
        return False
    for entry in listed.split(","):
        try:
            network = ip_network(entry.strip(), strict=False)
        except ValueError:  # It is the name of a host.
            continue
        if address in network:
            return True
    return False
