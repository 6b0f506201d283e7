"""Remove credentials from URLs in text that is printed or digested."""

from __future__ import annotations

import re
from typing import Final

_USERINFO: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*://)[^/\s'\"`<>]*@")


def without_credentials(text: str) -> str:
    """Return *text* with user and password removed from every URL."""
    return _USERINFO.sub(r"\1", text)
