"""Credentials of package indexes, for downloads by Kinetic, and for uv where it cannot find them itself."""

from __future__ import annotations

import netrc
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from kinetic_images.dependencies import Dependencies
from kinetic_images.lock.addresses import full_addresses
from kinetic_images.lock.google_indexes import is_google_index
from kinetic_images.registry.logins import Login
from kinetic_images.uv import inherited
from kinetic_payload.files.private import write_private

_ASKED_ELSEWHERE: Final = ("oauth2accesstoken",)
"""Users of URLs whose password is found in another place."""
_PLAIN: Final = re.compile(r"[^\s\"\\#]+")
"""Words of a netrc file that need no quotation marks."""
_NAME: Final = re.compile(r"(?P<name>[\w.-]+)=(?P<url>.+)")


@dataclass(frozen=True)
class _Index:
    url: str = field(repr=False)
    name: str | None = None


class IndexCredentials:
    """The credentials for the indexes and addresses that *dependencies* name.

    In this order: those in an address or an index's URL; `UV_INDEX_{NAME}_USERNAME` and `_PASSWORD`; the
    netrc file; for Python repositories in Artifact Registry, the Application Default Credentials that *google*
    returns. *environ* is the environment of uv (default: that of the process).
    """

    def __init__(
        self,
        dependencies: Dependencies,
        environ: Mapping[str, str] | None = None,
        *,
        google: Callable[[], Login | None] | None = None,
    ) -> None:
        self._environ = inherited(environ)
        self._google = google or self._default_login
        self._addresses = full_addresses(dependencies)
        self._indexes = [*_indexes(dependencies)]

    def authorization(self, url: str) -> str | None:
        """Return the value of the header `Authorization` for *url*; None: without credentials."""
        return self._authorization(url, default=True)

    def _authorization(self, url: str, *, default: bool) -> str | None:
        """Return the header; *default*: also that of the `default` login of the netrc file."""
        own = _basic(self._addresses.get(url, url))
        if own is not None:
            return own
        host = urlsplit(url).netloc.rpartition("@")[2]
        same_host = [
            index
            for index in self._indexes
            if urlsplit(index.url).netloc.rpartition("@")[2] == host
        ]
        # The files of an index are often beside it, not below it.
        for index in sorted(same_host, key=lambda index: -_common(index.url, url)):
            found = _basic(index.url) or self._named(index.name)
            if found is not None:
                return found
        is_google = is_google_index(url)
        found = self._netrc(host.partition(":")[0], default=default and not is_google)
        if found is None and is_google:
            login = self._google()
            found = login.basic if login is not None else None
        return found

    def netrc(self, addresses: Iterable[str] | None = None) -> str:
        """Return the credentials for *addresses* in the format of netrc, for use elsewhere.

        By default, those of all indexes and addresses. A host can have only one login there. The `default`
        login of the netrc file stays here: it is for any host. The tokens of Artifact Registry hold for an hour.
        """
        if addresses is None:
            addresses = (*self._addresses.values(), *(index.url for index in self._indexes))
        logins = dict[str, str]()
        for url in addresses:
            host = urlsplit(url).hostname
            found = self._authorization(url, default=False) if host else None
            if host and found:
                user, _, password = b64decode(found.partition(" ")[2]).decode().partition(":")
                line = f"machine {host} login {_word(user)} password {_word(password)}\n"
                logins.setdefault(host, line)
        return "".join(logins.values())

    def variables(self, folder: Path) -> dict[str, str]:
        """Return variables that give uv the credentials it cannot find itself: those of Artifact Registry.

        They name a private file in *folder*, which the caller removes.
        """
        hosts = {
            host
            for index in self._indexes
            if is_google_index(index.url)
            and _basic(index.url) is None
            and self._named(index.name) is None
            and self._netrc(host := urlsplit(index.url).netloc.rpartition("@")[2]) is None
        }
        if not hosts or (login := self._google()) is None or not login.token:
            return {}
        text = self._netrc_text()
        for host in sorted(hosts):
            text += f"\nmachine {host} login oauth2accesstoken password {login.token}\n"
        path = folder / "netrc"
        write_private(path, text.encode())
        return {"NETRC": str(path)}

    def _default_login(self) -> Login | None:
        # Only those who use Artifact Registry need these libraries.
        from kinetic_images.registry.google_login import GoogleLogin

        return GoogleLogin(self._environ)()

    def _named(self, name: str | None) -> str | None:
        if name is None:
            return None
        key = re.sub(r"[^A-Z0-9]", "_", name.upper())
        user = self._environ.get(f"UV_INDEX_{key}_USERNAME", "")
        password = self._environ.get(f"UV_INDEX_{key}_PASSWORD", "")
        return _encoded(user, password) if user or password else None

    def _netrc(self, host: str, *, default: bool = False) -> str | None:
        path = self._netrc_path()
        if path is None:
            return None
        try:
            hosts = netrc.netrc(str(path)).hosts
        except (OSError, netrc.NetrcParseError, UnicodeDecodeError):
            return None
        found = hosts.get(host) or (hosts.get("default") if default else None)
        return _encoded(found[0], found[2]) if found else None

    def _netrc_path(self) -> Path | None:
        named, home = self._environ.get("NETRC"), self._environ.get("HOME")
        path = Path(named) if named else Path(home, ".netrc") if home else None
        return path if path is not None and path.is_file() else None

    def _netrc_text(self) -> str:
        path = self._netrc_path()
        try:
            return path.read_text() if path is not None else ""
        except (OSError, UnicodeDecodeError):
            return ""


def _indexes(dependencies: Dependencies) -> Iterator[_Index]:
    for option in dependencies.options:
        if option.name in ("--index-url", "--extra-index-url", "--find-links"):
            yield _Index(option.value)
    passed = dependencies.settings.passed
    for table in (*dependencies.indexes, *passed.get("index", ())):
        yield _Index(str(table.get("url", "")), table.get("name"))
    for settings in (passed, passed.get("pip", {})):
        for key in ("index-url", "extra-index-url", "find-links"):
            yield from map(_Index, _texts(settings.get(key)))
    for value in dependencies.settings.variables.values():
        for word in re.split(r"[ ,]+", value):
            named = _NAME.fullmatch(word)
            yield _Index(named["url"], named["name"]) if named else _Index(word)


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [text for text in value or () if isinstance(text, str)]


def _basic(url: str) -> str | None:
    parts = urlsplit(url)
    if parts.username is None or (parts.password is None and parts.username in _ASKED_ELSEWHERE):
        return None
    return _encoded(unquote(parts.username), unquote(parts.password or ""))


def _word(text: str) -> str:
    """Return *text* as a word of a netrc file."""
    if _PLAIN.fullmatch(text):
        return text
    return '"' + text.replace("\\", r"\\").replace('"', r"\"") + '"'


def _encoded(user: str, password: str) -> str:
    return f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"


def _common(first: str, second: str) -> int:
    """Return how many parts of their paths two URLs have in common."""
    pairs = zip(urlsplit(first).path.split("/"), urlsplit(second).path.split("/"), strict=False)
    count = 0
    for one, other in pairs:
        if one != other:
            break
        count += 1
    return count
