"""Python repositories in Artifact Registry, by their addresses."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

_HOST: Final = re.compile(r"[a-z0-9-]+-python\.pkg\.dev")


def is_google_index(address: str) -> bool:
    """Return whether *address* is in a Python repository of Artifact Registry.

    Tokens are sent there; without encryption, it does not count as one.
    """
    parts = urlsplit(address)
    return parts.scheme == "https" and _HOST.fullmatch(parts.netloc.rpartition("@")[2]) is not None
