"""Authentication at registries: tokens from their token services, and basic authentication."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import time
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from kinetic_images.errors import RegistryError
from kinetic_images.registry.addresses import Addresses, shown
from kinetic_images.registry.credentials import ANONYMOUS, Credentials, Login
from kinetic_images.registry.names import is_google
from kinetic_images.registry.refusals import LARGEST_ANSWER, Call, Challenge, Refusal, error_of
from kinetic_payload.http.retry import TransientError
from kinetic_payload.http.session import NoResponseError, Outgoing, Session
from kinetic_payload.threads import check_wanted

_DEFAULT_SECONDS: Final = 60.0
"""How long a token is valid if its service does not say: as the specification has it."""
_EARLY_SHARE: Final = 0.15
"""The share of a token's time that is left when it is replaced."""
_POLL: Final = 0.1
_CLIENT: Final = "kinetic"


@dataclass
class _Host:
    """What is known of one registry."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held by the one thread that authenticates, which may take long: a helper may wait for a person."""
    login: Login | None = None
    """None: not looked up yet."""
    challenge: Challenge | None = None
    tokens: dict[tuple[str, ...], tuple[str, float]] = field(default_factory=dict)
    """Scopes → header and when it is replaced."""


class Authorizer:
    """Provides the header `Authorization` for requests. Threads can share it."""

    def __init__(self, logins: Credentials, addresses: Addresses, session: Session) -> None:
        self._logins = logins
        self._addresses = addresses
        self._session = session
        self._process = os.getpid()
        self._guard = threading.Lock()
        self._hosts: dict[str, _Host] = {}

    def source(self, host: str) -> str:
        """Return where the login to *host* is from, for messages."""
        return (self._host(host).login or ANONYMOUS).source

    def forget(self, host: str) -> None:
        """Let the next request look for a login again: the user may have made one meanwhile."""
        with self._guard:
            self._hosts.pop(host, None)

    def header(self, call: Call) -> str | None:
        """Return the header for a first try; None: the registry must be asked how to authenticate.

        Raises:
            RegistryError: There is no login.
        """
        host = self._host(call.host)
        known = host.tokens.get(call.scopes)
        if known is not None and time() < known[1]:
            return known[0]
        if is_google(call.host):
            # These registries accept the user's token, so that one request is enough.
            with self._held(host):
                login = self._login(call, host)
                return f"Bearer {login.token}" if login.token else None
        if host.challenge is not None and host.challenge.scheme == "basic" and host.login:
            return host.login.basic
        return None

    def renew(
        self, call: Call, challenges: Sequence[Challenge], rejected: str | None, seconds: float
    ) -> str:
        """Return a header in place of *rejected*, which was answered by *challenges*.

        Raises:
            RegistryLoginError: There are no credentials, or they are rejected.
            RegistryError: The challenge, or the token service's response, cannot be used.
            TransientError: The token service did not respond.
        """
        host = self._host(call.host)
        with self._held(host):
            known = host.tokens.get(call.scopes)
            if known is not None and known[0] != rejected and time() < known[1]:
                return known[0]  # Another thread has just got it.
            fresh = rejected is not None
            if fresh:
                host.tokens.clear()
                host.login = None
            bearer = next((each for each in challenges if each.scheme == "bearer"), None)
            basic = next((each for each in challenges if each.scheme == "basic"), None)
            host.challenge = bearer or basic
            reused = host.login is not None
            login = self._login(call, host)
            if login.token and f"Bearer {login.token}" != rejected:
                header, until = f"Bearer {login.token}", login.renew_at or float("inf")
            elif bearer is not None:
                header, until = self._exchange(call, host, bearer, seconds, again=reused)
            elif basic is not None and login.basic and login.basic != rejected:
                header, until = login.basic, float("inf")
            else:
                raise error_of(Refusal(401), call, login.source)
            host.tokens[call.scopes] = (header, until)
            return header

    def _exchange(
        self, call: Call, host: _Host, challenge: Challenge, seconds: float, *, again: bool
    ) -> tuple[str, float]:
        """Return a header with a new token; if the login is rejected, and *again*, look it up again."""
        login = self._login(call, host)
        asked, request = time(), self._token_request(call, challenge, login)
        try:
            response = self._session.open(request, seconds=seconds)
            response = response.read(most=LARGEST_ANSWER, seconds=seconds)
        except NoResponseError as error:
            error.reason = f"the token service {urlsplit(request.url).hostname}: {error.reason}"
            raise
        if response.status == 200:
            try:
                found: Any = json.loads(response.data)
                token = found.get("token") or found.get("access_token")
                seconds = float(found.get("expires_in") or _DEFAULT_SECONDS)
            except (ValueError, AttributeError, TypeError, OverflowError, RecursionError):
                token, seconds = None, 0.0
            if not isinstance(token, str) or not token.isascii() or not token.isprintable():
                # The response may contain a secret, so it is not quoted.
                raise RegistryError(
                    f"Could not {call}: the response of its token service "
                    f"{urlsplit(response.url).hostname} contains no token.",
                    hint="Log in to the network, or check the address of the registry.",
                ) from None
            return f"Bearer {token}", asked + seconds * (1 - _EARLY_SHARE)
        refusal = Refusal.of(response)
        seen = f"its token service {urlsplit(response.url).hostname} responded with {refusal}"
        if response.status in (400, 401, 403):
            if again:
                host.login = None
                return self._exchange(call, host, challenge, seconds, again=False)
            raise error_of(Refusal(401), call, login.source, seen=seen)
        if refusal.transient:
            raise TransientError(
                seen,
                retry_after=refusal.retry_after,
                limited=refusal.status == 429,
            )
        raise RegistryError(f"Could not {call}: {seen}.")

    def _token_request(self, call: Call, challenge: Challenge, login: Login) -> Outgoing:
        realm = challenge.parameters.get("realm", "")
        if not self._addresses.permits(realm) or (
            urlsplit(realm).scheme == "http" and not self._addresses.is_plain(call.host)
        ):
            raise RegistryError(
                f"Could not {call}: the registry names {shown(realm)!r} as its token service, to which no "
                "credentials are sent, because it is not encrypted.",
                hint="The address must begin with https://. Ask the operator of the registry.",
            )
        scopes = list(call.scopes)
        asked = challenge.parameters.get("scope", "")
        name, _, actions = asked.rpartition(":")
        rights = [own.rpartition(":") for own in scopes]
        if asked and not any(
            name == own and {*actions.split(",")} <= {*has.split(",")} for own, _, has in rights
        ):
            scopes.append(asked)
        service = challenge.parameters.get("service", "")
        query = [("service", service)] if service else []
        if login.identity_token:
            form = [
                *query,
                ("client_id", _CLIENT),
                ("grant_type", "refresh_token"),
                ("refresh_token", login.identity_token),
                ("scope", " ".join(scopes)),
            ]
            return Outgoing(
                method="POST",
                url=realm,
                headers={"Content-Type": "application/x-www-form-urlencoded"},
                body=urlencode(form).encode(),
            )
        query += [("scope", scope) for scope in scopes]
        joint = "&" if urlsplit(realm).query else "?"
        headers = {"Authorization": login.basic} if login.basic else {}
        return Outgoing(method="GET", url=f"{realm}{joint}{urlencode(query)}", headers=headers)

    def _login(self, call: Call, host: _Host) -> Login:
        known = host.login
        if known is None or (known.renew_at is not None and time() >= known.renew_at):
            host.login = known = self._logins.login(call.host)
        return known

    def _host(self, name: str) -> _Host:
        if self._process != os.getpid():  # Other threads of the parent may have held the locks.
            self._process, self._guard, self._hosts = os.getpid(), threading.Lock(), {}
        with self._guard:
            return self._hosts.setdefault(name, _Host())

    @contextmanager
    def _held(self, host: _Host) -> Iterator[None]:
        while not host.lock.acquire(timeout=_POLL):
            check_wanted()
        try:
            yield
        finally:
            host.lock.release()
