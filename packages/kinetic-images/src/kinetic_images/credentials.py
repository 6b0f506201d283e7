"""Text without the credentials in its URLs."""

from __future__ import annotations

import re
from typing import Final

_USERINFO: Final = re.compile(r"://[^/\s'\"`<>]*@")


def without_credentials(text: str) -> str:
    """Return *text* with user and password removed from every URL."""
    return _USERINFO.sub("://", text)
