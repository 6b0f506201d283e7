"""The indexes of build requirements of source archives, as variables of uv inside a build."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from kinetic_images.credentials import without_credentials
from kinetic_images.dependencies import Dependencies

_NAME: Final = re.compile(r"[\w.-]+=(?=\w+://)")
STRATEGY: Final = "UV_INDEX_STRATEGY"
INDEXES: Final = ("UV_DEFAULT_INDEX", "UV_INDEX", "UV_FIND_LINKS")
"""The variables with addresses."""


def build_indexes(dependencies: Dependencies) -> dict[str, str]:
    """Return variables that name the indexes of *dependencies*, without credentials.

    Otherwise a build would take what a source archive needs to be built from the public index. Folders are
    left out: they are on this machine only.
    """
    passed, variables = dependencies.settings.passed, dependencies.settings.variables
    pip = passed.get("pip", {})
    # The last `--index-url` of requirements files counts.
    defaults = _options(dependencies, "--index-url")[::-1]
    extras = _options(dependencies, "--extra-index-url")
    links = _options(dependencies, "--find-links")
    defaults += _words(variables, "UV_DEFAULT_INDEX", "UV_INDEX_URL")
    extras += _words(variables, "UV_INDEX", "UV_EXTRA_INDEX_URL")
    links += _words(variables, "UV_FIND_LINKS")
    for table in (*dependencies.indexes, *passed.get("index", ())):
        if not table.get("explicit"):
            flat, default = table.get("format") == "flat", table.get("default")
            (links if flat else defaults if default else extras).append(str(table.get("url", "")))
    for settings in (passed, pip):
        defaults += _texts(settings.get("index-url"))
        extras += _texts(settings.get("extra-index-url"))
        links += _texts(settings.get("find-links"))
    strategy = variables.get(STRATEGY) or passed.get("index-strategy") or pip.get("index-strategy")
    found = {
        "UV_DEFAULT_INDEX": " ".join(_reachable(defaults)[:1]),
        "UV_INDEX": " ".join(_reachable(extras)),
        "UV_FIND_LINKS": ",".join(_reachable(links)),
        STRATEGY: str(strategy or ""),
    }
    return {name: value for name, value in found.items() if value}


def index_addresses(environment: Mapping[str, str]) -> list[str]:
    """Return the addresses in the variables of `build_indexes`."""
    return _words(environment, *INDEXES)


def _options(dependencies: Dependencies, name: str) -> list[str]:
    return [option.value for option in dependencies.options if option.name == name]


def _words(variables: Mapping[str, str], *names: str) -> list[str]:
    text = " ".join(variables.get(name, "") for name in names)
    return [_NAME.sub("", word) for word in re.split(r"[ ,]+", text) if word]


def _texts(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else [str(each) for each in value or ()]


def _reachable(addresses: Iterable[str]) -> list[str]:
    found = [without_credentials(each) for each in addresses]
    return [each for each in dict.fromkeys(found) if urlsplit(each).scheme in ("http", "https")]
