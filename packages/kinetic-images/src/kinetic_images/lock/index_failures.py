"""Failures of package indexes, as uv reports them: which index it was, where it is named, and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from kinetic_images.credentials import without_secrets
from kinetic_images.dependencies import Dependencies
from kinetic_payload.http.session import origin

_URL: Final = re.compile(r"https?://[^\s'\"`()<>]+")
_REFUSED: Final = re.compile(r"\b(401 Unauthorized|403 Forbidden)\b")
_AWAY: Final = re.compile(
    r"error sending request|dns error|tcp connect error|operation timed out", re.IGNORECASE
)
_LOGIN_HINT: Final = (
    "Check the user and the password in the index's URL, in UV_INDEX_NAME_USERNAME and UV_INDEX_NAME_PASSWORD, "
    "or in ~/.netrc; for Artifact Registry run: gcloud auth application-default login"
)
_AWAY_HINT: Final = (
    "Check the address of the index, the network, and a VPN or proxy. Then call again."
)


@dataclass(frozen=True)
class IndexFailure:
    """An index that refused a login, or did not respond."""

    summary: str
    """One sentence with the index, without credentials, and the places that name it."""
    hint: str


def index_failure(output: str, dependencies: Dependencies) -> IndexFailure | None:
    """Return the failure of an index that *output* of uv describes; None: it describes another one."""
    refused = _REFUSED.search(output)
    if refused is None and not _AWAY.search(output):
        return None
    seen = [without_secrets(url).rstrip(".,:;") for url in _URL.findall(output)]
    if not seen:
        return None
    origins = {*map(origin, seen)}
    named = [(place, url) for place, url in _named(dependencies) if origin(url) in origins]
    index = without_secrets(named[0][1]) if named else "/".join([*seen[0].split("/")[:3], ""])
    where = f" ({', '.join(dict.fromkeys(place for place, _ in named))})" if named else ""
    if refused is not None:
        summary = f"The package index {index}{where} does not accept the login: {refused[1]}."
        return IndexFailure(summary, _LOGIN_HINT)
    return IndexFailure(f"The package index {index}{where} cannot be reached.", _AWAY_HINT)


def _named(dependencies: Dependencies) -> Iterator[tuple[str, str]]:
    """Iterate over the addresses of indexes, each with the place that names it."""
    for option in dependencies.options:
        yield f"{dependencies.shown(option.place)}: {option.name}", option.value
    settings = dependencies.settings
    for table in (*dependencies.indexes, *settings.passed.get("index", ())):
        name = table.get("name")
        yield f"[[tool.uv.index]]{f' {name}' if name else ''}", str(table.get("url", ""))
    for key in ("index-url", "extra-index-url", "find-links"):
        value = settings.passed.get(key, ())
        for url in [value] if isinstance(value, str) else value:
            yield f"{key} of uv's settings", str(url)
    for variable, text in settings.variables.items():
        for word in re.split(r"[ ,]+", text):
            yield variable, word[match.start() :] if (match := _URL.search(word)) else word
