"""Names of the objects that belong to a job, and of places."""

from __future__ import annotations

import re
from typing import Final

KEY_SECRET: Final = "kinetic-key"  # noqa: S105 - a name
"""The Secret with the signing key of a namespace."""
KEY_IN_SECRET: Final = "key"  # noqa: S105 - a name
"""The entry of that Secret that contains the key, in hexadecimal."""
CONTAINER: Final = "kinetic"
"""The container that runs the command."""
_LONGEST_LABEL: Final = 63
_LONGEST_SUBDOMAIN: Final = 253
_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LOCATION: Final = re.compile(r"([a-z]+(?:-[a-z]+)+[0-9]+)(-[a-z])?")
_ENVIRONMENT_SUFFIX: Final = "-env"
_DIGEST_LENGTH: Final = 40
_RUNNER: Final = "kn-runner-"


def environment_secret_name(job: str) -> str:
    """Return the name of the Secret with the captured environment of *job*."""
    return f"{job}{_ENVIRONMENT_SUFFIX}"


def runner_config_map_name(digest: str) -> str:
    """Return the name of the ConfigMap with the file whose SHA-256 is *digest*."""
    return f"{_RUNNER}{digest[:_DIGEST_LENGTH]}"


def is_runner_config_map(name: str) -> bool:
    """Return whether *name* is one of `runner_config_map_name`."""
    return name.startswith(_RUNNER)


def is_namespace_name(text: str) -> bool:
    """Return whether *text* can be the name of a namespace."""
    return len(text) <= _LONGEST_LABEL and _LABEL.fullmatch(text) is not None


def is_object_name(text: str) -> bool:
    """Return whether *text* can be the name of a ServiceAccount, and of most other objects."""
    parts = text.split(".")
    return len(text) <= _LONGEST_SUBDOMAIN and all(_LABEL.fullmatch(part) for part in parts)


def region_of(location: str) -> str | None:
    """Return the region of a zone of Google Cloud, or *location* if that is a region; None if it is neither."""
    found = _LOCATION.fullmatch(location)
    return found[1] if found else None
