"""Credentials in URLs: where they may be sent, and text without them."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

_USERINFO: Final = re.compile(r"://[^/\s'\"`<>]*@")


def origin(url: str) -> tuple[str, str, int]:
    """Return scheme, host and port of *url*: credentials for one origin are sent to no other.

    The host is empty if *url* is malformed, or not the address of a server.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "", "", 0
    return parts.scheme, parts.hostname or "", port or (443 if parts.scheme == "https" else 80)


def without_credentials(text: str) -> str:
    """Return *text* with user and password removed from every URL."""
    return _USERINFO.sub("://", text)
