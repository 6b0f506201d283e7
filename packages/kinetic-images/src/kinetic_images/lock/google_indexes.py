"""Python repositories in Artifact Registry, by their addresses."""

from __future__ import annotations

import re
from typing import Final

from kinetic_payload.http.session import origin

_HOST: Final = re.compile(r"[a-z0-9-]+-python\.pkg\.dev")


def is_google_index(address: str) -> bool:
    """Return whether *address* is in a Python repository of Artifact Registry.

    Tokens are sent there; without encryption, it does not count as one.
    """
    scheme, host, port = origin(address)
    return (scheme, port) == ("https", 443) and _HOST.fullmatch(host) is not None
