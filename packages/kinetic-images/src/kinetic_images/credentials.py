"""Text without the secrets in its URLs."""

from __future__ import annotations

import re
from typing import Final

_USERINFO: Final = re.compile(r"://[^/\s'\"`<>]*@")
_QUERY: Final = re.compile(r"(://[^\s'\"`<>?#]*)\?[^\s'\"`<>#)]*")


def without_credentials(text: str) -> str:
    """Return *text* with user and password removed from every URL."""
    return _USERINFO.sub("://", text)


def without_secrets(text: str) -> str:
    """Return *text* with user, password and query removed from every URL: a query may contain a signature."""
    return _QUERY.sub(r"\1", without_credentials(text))
