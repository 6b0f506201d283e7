"""Who may do what in a registry for tests: users, tokens and their scopes."""

from __future__ import annotations

import secrets
import threading
import time
from base64 import b64decode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Literal

ANYONE = ""
"""The name of a caller without credentials."""


@dataclass(frozen=True, kw_only=True)
class User:
    """A user, and which actions (`pull`, `push`) repositories permit to them, by pattern (`fnmatch`)."""

    password: str = field(default="", repr=False)
    grants: Mapping[str, frozenset[str]] = field(
        default_factory=lambda: {"*": frozenset({"pull", "push"})}
    )

    def may(self, repository: str) -> frozenset[str]:
        """Return the actions that are permitted in *repository*."""
        return frozenset[str]().union(
            *(what for name, what in self.grants.items() if fnmatchcase(repository, name))
        )


@dataclass(frozen=True)
class _Token:
    user: str
    scopes: Mapping[str, frozenset[str]]
    until: float


@dataclass
class Access:
    """The users of a registry, and the tokens that its token service gives them.

    Users are known by name; the one of the name "" is anybody. With `basic`, there are no tokens.
    """

    users: dict[str, User]
    basic: bool = False
    seconds: int = 300
    """How long tokens are valid."""
    refresh: dict[str, str] = field(default_factory=dict, repr=False)
    """Identity token → name of the user."""
    direct: dict[str, str] = field(default_factory=dict, repr=False)
    """Tokens that the registry itself accepts, like Google's → name of the user."""
    issued: int = 0
    """How many tokens were given."""

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._tokens: dict[str, _Token] = {}

    def revoke(self) -> None:
        """Accept no token any more that the token service has given."""
        with self._lock:
            self._tokens.clear()

    def log_in(self, header: str) -> str | None:
        """Return the user of a header with a password; ANYONE without one, None if it is wrong."""
        if not header:
            return ANYONE
        scheme, _, value = header.partition(" ")
        try:
            name, _, password = b64decode(value, validate=True).decode().partition(":")
        except ValueError:
            return None
        if scheme.lower() != "basic" or not name:
            return None
        if name == "oauth2accesstoken":
            return self.direct.get(password)
        user = self.users.get(name)
        matches = user is not None and secrets.compare_digest(
            user.password.encode(), password.encode()
        )
        return name if matches else None

    def issue(self, name: str, scopes: Iterable[str]) -> str:
        """Return a new token for the user *name*, with the part of *scopes* that is permitted."""
        granted: dict[str, frozenset[str]] = {}
        for scope in " ".join(scopes).split():
            kind, _, rest = scope.partition(":")
            repository, _, actions = rest.rpartition(":")
            if kind == "repository":
                wanted = frozenset(actions.split(",")) & self._may(name, repository)
                granted[repository] = granted.get(repository, frozenset()) | wanted
        token = secrets.token_urlsafe(24)
        with self._lock:
            self.issued += 1
            self._tokens[token] = _Token(name, granted, time.time() + self.seconds)
        return token

    def check(
        self, header: str, needed: Mapping[str, str]
    ) -> tuple[str, Literal["", "missing", "invalid", "insufficient"]]:
        """Return the user of a request, and what is wrong with it that needs *needed*: repository → action."""
        scheme, _, value = header.partition(" ")
        if self.basic or scheme.lower() == "basic":
            name = self.log_in(header)
            if name is None:
                return ANYONE, "invalid"
            granted = {repository: self._may(name, repository) for repository in needed}
        elif value in self.direct:
            name = self.direct[value]
            granted = {repository: self._may(name, repository) for repository in needed}
        elif not header:
            return ANYONE, "missing"
        else:
            with self._lock:
                token = self._tokens.get(value)
            if token is None or token.until < time.time():
                return ANYONE, "invalid"
            name, granted = token.user, dict(token.scopes)
        permitted = all(what in granted.get(repository, ()) for repository, what in needed.items())
        if permitted:
            return name, ""
        return name, "insufficient" if header else "missing"

    def _may(self, name: str, repository: str) -> frozenset[str]:
        user = self.users.get(name)
        return user.may(repository) if user else frozenset()
