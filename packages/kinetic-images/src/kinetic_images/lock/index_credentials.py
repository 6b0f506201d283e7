"""Credentials of package indexes, for downloads by Kinetic, and for uv where it cannot find them itself."""

from __future__ import annotations

import netrc
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path
from posixpath import commonprefix
from typing import Final
from urllib.parse import unquote, urlsplit

from kinetic_images.dependencies import Dependencies
from kinetic_images.errors import DependencyError
from kinetic_images.lock.addresses import full_addresses, is_google_index
from kinetic_images.registry.addresses import shown
from kinetic_images.registry.credentials import Login, google_login
from kinetic_images.uv import inherited
from kinetic_payload.files.private import write_private
from kinetic_payload.http.session import origin

_ASKED_ELSEWHERE: Final = ("oauth2accesstoken",)
"""Users of URLs whose password is found in another place."""
_URL: Final = re.compile(r"https?://[^\s'\"]+")
_PLAIN: Final = re.compile(r"[^\s\"\\#]+")
"""Words of a netrc file that need no quotation marks."""


class IndexCredentials:
    """The credentials for the indexes and addresses that *dependencies* name.

    In this order: those in an address or an index's URL; `UV_INDEX_{NAME}_USERNAME` and `_PASSWORD`; the
    netrc file; for Python repositories in Artifact Registry, the Application Default Credentials that *google*
    returns. *environ* is the environment of uv (default: that of the process).

    Those of an index hold for its scheme, host and port only. Those of the netrc file, which names no scheme, are
    not for plain http, except where *dependencies* name the origin themselves: an index lists what it wants.
    """

    def __init__(
        self,
        dependencies: Dependencies,
        environ: Mapping[str, str] | None = None,
        *,
        google: Callable[[], Login | None] | None = None,
    ) -> None:
        self._environ = inherited(environ)
        self._google = google or partial(google_login, self._environ)
        self._addresses = full_addresses(dependencies)
        self._indexes = [index for index in dependencies.indexes if _origin(index.address)[1]]
        lines = (*dependencies.requirements, *dependencies.constraints)
        named = (
            *(index.address for index in self._indexes),
            *(line.url for line in lines if line.url),
        )
        settings = (
            dependencies.settings.values(f"{key}-dependencies")
            for key in ("constraint", "override")
        )
        texts = " ".join(map(str, chain.from_iterable(settings)))
        self._named_origins = {*map(_origin, (*named, *_URL.findall(texts)))}

    def authorization(self, url: str, *, default: bool = True) -> str | None:
        """Return the value of the header `Authorization` for *url*; None: without credentials.

        *default*: it may be that of the `default` login of the netrc file.
        """
        place = _origin(url)
        if not place[1]:
            return None
        own = _basic(self._addresses.get(url, url))
        if own is not None:
            return own
        same = [index for index in self._indexes if _origin(index.address) == place]
        # The files of an index are often beside it, not below it.
        path = urlsplit(url).path.split("/")
        shared = {
            index.address: len(commonprefix([urlsplit(index.address).path.split("/"), path]))
            for index in same
        }
        for index in sorted(same, key=lambda index: -shared[index.address]):
            found = _basic(index.address) or self._named(index.options.get("name"))
            if found is not None:
                return found
        is_google = is_google_index(url)
        found = self._netrc(url, default=default and not is_google)
        if found is None and is_google:
            login = self._google()
            found = login.basic if login is not None else None
        return found

    def netrc(self, addresses: Iterable[str] | None = None) -> str:
        """Return the credentials for *addresses* in the format of netrc, for use elsewhere.

        By default, those of all indexes and addresses. A host can have only one login there. The `default`
        login of the netrc file stays here: it is for any host. The tokens of Artifact Registry hold for an hour.

        Raises:
            DependencyError: One of *addresses* is plain http, and would get the login of another one.
        """
        if addresses is None:
            addresses = (*self._addresses.values(), *(index.address for index in self._indexes))
        found = {url: self.authorization(url, default=False) for url in addresses}
        logins = dict[str, str]()
        for url, login in found.items():
            if login:
                logins.setdefault(_origin(url)[1], login)
        for url, login in found.items():
            scheme, host, _ = _origin(url)
            is_google = is_google_index(f"https://{host}")  # Pods have a token for it.
            if scheme == "http" and (is_google or login != logins.get(host)):
                raise DependencyError(
                    f"{shown(url)} is fetched by plain http, and the login for {host} would be sent there "
                    "unencrypted.",
                    hint="Use an index that lists https addresses. If you trust the network, name the server of that "
                    "address as an index with this login: --extra-index-url http://USER:PASSWORD@HOST/",
                )
        text = ""
        for host, login in logins.items():
            user, _, password = b64decode(login.partition(" ")[2]).decode().partition(":")
            # So uv 0.13 looks for IPv6 addresses.
            text += _netrc_line(f"[{host}]" if ":" in host else host, user, password)
        return text

    def variables(self, folder: Path) -> dict[str, str]:
        """Return variables that give uv the credentials it cannot find itself: those of Artifact Registry.

        They name private files in *folder*, which the caller removes.
        """
        hosts = {
            _origin(index.address)[1]
            for index in self._indexes
            if is_google_index(index.address)
            and _basic(index.address) is None
            and self._named(index.options.get("name")) is None
            and self._netrc(index.address) is None
        }
        if not hosts or (login := self._google()) is None or not login.token:
            return {}
        # uv's own store is by scheme, host and port; a netrc file is by host, also for plain http.
        home = self._environ.get("HOME", "/")
        data = self._environ.get("XDG_DATA_HOME") or f"{home}/.local/share"
        store = self._environ.get("UV_CREDENTIALS_DIR") or f"{data}/uv/credentials"
        text = ""
        with suppress(OSError, UnicodeDecodeError):
            text = Path(store, "credentials.toml").read_text(encoding="utf-8")
        for host in sorted(hosts):
            text += f'\n[[credential]]\nservice = "https://{host}/"\nscheme = "basic"\n'
            text += f'username = "oauth2accesstoken"\npassword = "{login.token}"\n'
        write_private(folder / "credentials.toml", text.encode())
        found = {"UV_CREDENTIALS_DIR": str(folder)}
        if "default" in (logins := self._netrc_logins()):  # It would take precedence.
            kept = (_netrc_line(name, *each) for name, each in logins.items() if name != "default")
            write_private(folder / "netrc", "".join(kept).encode())
            found["NETRC"] = str(folder / "netrc")
        return found

    def _named(self, name: str | None) -> str | None:
        if name is None:
            return None
        key = re.sub(r"[^A-Z0-9]", "_", name.upper())
        user = self._environ.get(f"UV_INDEX_{key}_USERNAME", "")
        password = self._environ.get(f"UV_INDEX_{key}_PASSWORD", "")
        return _encoded(user, password) if user or password else None

    def _netrc(self, url: str, *, default: bool = False) -> str | None:
        place = _origin(url)
        if place[0] == "http" and place not in self._named_origins:
            return None
        logins = self._netrc_logins()
        names = (place[1], f"[{place[1]}]", *(["default"] if default else []))
        found = next(filter(None, map(logins.get, names)), None)
        return _encoded(*found) if found else None

    def _netrc_logins(self) -> dict[str, tuple[str, str]]:
        named, home = self._environ.get("NETRC"), self._environ.get("HOME")
        path = named or (f"{home}/.netrc" if home else None)
        try:
            # A pipe could be read only once.
            hosts = netrc.netrc(path).hosts if path and Path(path).is_file() else {}
        except (OSError, netrc.NetrcParseError, UnicodeDecodeError):
            return {}
        return {name: (found[0], found[2]) for name, found in hosts.items()}


def _origin(url: str) -> tuple[str, str, int]:
    return origin(url.removeprefix("git+"))


def _basic(url: str) -> str | None:
    parts = urlsplit(url)
    if parts.username is None or (parts.password is None and parts.username in _ASKED_ELSEWHERE):
        return None
    return _encoded(unquote(parts.username), unquote(parts.password or ""))


def _netrc_line(host: str, user: str, password: str) -> str:
    return f"machine {host} login {_word(user)} password {_word(password)}\n"


def _word(text: str) -> str:
    """Return *text* as a word of a netrc file."""
    if _PLAIN.fullmatch(text):
        return text
    return '"' + text.replace("\\", r"\\").replace('"', r"\"") + '"'


def _encoded(user: str, password: str) -> str:
    return f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"
