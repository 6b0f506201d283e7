"""Addresses of packages and indexes: with the credentials that locks leave out; which ones are Google's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from kinetic_images.dependencies import Dependencies
from kinetic_images.lock.pylock import kept_address
from kinetic_payload.http.session import origin

_GOOGLE_HOST: Final = re.compile(r"[a-z0-9-]+-python\.pkg\.dev")


_REPOSITORY = re.compile(r"(?:git|hg|bzr|svn)\+")


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
