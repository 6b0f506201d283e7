"""The indexes of build requirements of source archives, as variables of uv inside a build."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import urlsplit

from kinetic_images.credentials import without_credentials
from kinetic_images.declared.uv_settings import Index
from kinetic_images.dependencies import Dependencies

STRATEGY: Final = "UV_INDEX_STRATEGY"
INDEXES: Final = ("UV_DEFAULT_INDEX", "UV_INDEX", "UV_FIND_LINKS")
"""The variables with addresses."""


def build_indexes(dependencies: Dependencies) -> dict[str, str]:
    """Return variables that name the indexes of *dependencies*, without credentials.

    Otherwise a build would take what a source archive needs to be built from the public index. Folders are
    left out: they are on this machine only.
    """
    indexes = [
        index
        for index in dependencies.indexes
        if urlsplit(index.address).scheme in ("http", "https") and not index.options.get("explicit")
    ]

    def addresses(kind: Callable[[Index], bool]) -> list[str]:
        return [*dict.fromkeys(without_credentials(each.address) for each in indexes if kind(each))]

    settings = dependencies.settings
    strategy = settings.variables.get(STRATEGY) or next(settings.values("index-strategy"), "")
    found = {
        "UV_DEFAULT_INDEX": " ".join(addresses(_is_default)[:1]),
        "UV_INDEX": " ".join(addresses(lambda each: not (each.is_flat or _is_default(each)))),
        "UV_FIND_LINKS": ",".join(addresses(lambda each: each.is_flat)),
        STRATEGY: str(strategy),
    }
    return {name: value for name, value in found.items() if value}


def _is_default(index: Index) -> bool:
    return bool(index.options.get("default"))


def index_addresses(environment: Mapping[str, str]) -> list[str]:
    """Return the addresses in the variables of `build_indexes`."""
    text = " ".join(environment.get(name, "") for name in INDEXES)
    return list(filter(None, re.split(r"[ ,]+", text)))
