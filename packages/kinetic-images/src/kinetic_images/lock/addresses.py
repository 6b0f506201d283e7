"""Addresses of packages and indexes: with the credentials that locks leave out, for builds, of Google's."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import urlsplit

from kinetic_images.credentials import without_credentials
from kinetic_images.declared.uv_settings import Index
from kinetic_images.dependencies import Dependencies
from kinetic_images.lock.pylock import kept_address
from kinetic_payload.http.session import origin

_GOOGLE_HOST: Final = re.compile(r"[a-z0-9-]+-python\.pkg\.dev")
_REPOSITORY: Final = re.compile(r"(?:git|hg|bzr|svn)\+")
STRATEGY: Final = "UV_INDEX_STRATEGY"
INDEXES: Final = ("UV_DEFAULT_INDEX", "UV_INDEX", "UV_FIND_LINKS")
"""The variables with addresses."""


def full_addresses(dependencies: Dependencies) -> Mapping[str, str]:
    """Return the addresses that *dependencies* declare with credentials, by the address in a lock.

    Pass it to `pylock_text` for an installation. The text must not be kept.
    """
    found = {}
    for line in dependencies.requirements:
        if line.url is None:
            continue
        full = line.url.partition("#")[0]
        kind = _REPOSITORY.match(full)
        if kind is not None:
            # Without the revision; an `@` before the path belongs to a user: git+https://me:secret@host/path
            host, slash, path = full.partition("://")[2].partition("/")
            full = f"{full.partition('://')[0]}://{host}{slash}{path.rpartition('@')[0] or path}"
            kept = kind[0] + kept_address(full[kind.end() :])
        else:
            kept = kept_address(full, direct=True)
        if kept != full:
            found[kept] = full
    return found


def is_google_index(address: str) -> bool:
    """Return whether *address* is in a Python repository of Artifact Registry.

    Tokens are sent there; without encryption, it does not count as one.
    """
    scheme, host, port = origin(address)
    return (scheme, port) == ("https", 443) and _GOOGLE_HOST.fullmatch(host) is not None


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
