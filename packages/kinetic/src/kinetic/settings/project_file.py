"""`kinetic.toml`: the options of `kinetic up` that the people of a project share."""

from __future__ import annotations

import tomllib
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from kinetic.errors import ConfigurationError

NAME: Final = "kinetic.toml"
SETTINGS: Final = ("project", "zone", "cluster", "namespace")
"""The keys that are settings; the others are fields of `ClusterOptions`."""
_LISTS: Final = ("accelerators", "namespaces", "users", "addons")
_FLAGS: Final = ("standard", "jobset")
KEYS: Final = (*SETTINGS, "network", "subnetwork", *_LISTS, *_FLAGS)


def read_project_file(path: Path) -> dict[str, Any]:
    """Return the keys of a file like `kinetic.toml`.

    Raises:
        ConfigurationError: It cannot be read, or a key is unknown or has a value of another type.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"The file {path} cannot be read: {error}.", hint="Correct it, or name another one."
        ) from error
    for key, value in document.items():
        if key not in KEYS:
            near = get_close_matches(key, KEYS, n=3)
            hint = (
                f"Did you mean {' or '.join(near)}?"
                if near
                else f"Its keys are: {', '.join(KEYS)}."
            )
            raise ConfigurationError(f"The file {path} has an unknown key {key!r}.", hint=hint)
        items = value if key in _LISTS and isinstance(value, list) else [value]
        kind = bool if key in _FLAGS else str
        if (key in _LISTS) != isinstance(value, list) or not all(
            isinstance(each, kind) and each != "" for each in items
        ):
            wanted = "a list of texts" if key in _LISTS else "a text"
            wanted = "true or false" if key in _FLAGS else wanted
            raise ConfigurationError(
                f"The file {path} has {key} = {value!r}, and {wanted} is expected.",
                hint="Correct it; docs/clusters.md shows the keys.",
            )
    return document
