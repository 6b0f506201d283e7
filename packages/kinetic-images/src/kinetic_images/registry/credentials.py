"""Logins of the user: docker's `config.json`, its credential helpers, Google's default credentials."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, Final

from kinetic_images.errors import RegistryError, RegistryLoginError, RegistryUnavailableError
from kinetic_images.registry.names import DOCKER_HUB, is_google
from kinetic_payload.threads import check_wanted

_DOCKER_HUB_KEY: Final = "https://index.docker.io/v1/"
"""How docker names Docker Hub in its configuration and to helpers."""
_HELPER_LIMIT: Final = 60.0
"""How many seconds a credential helper may take; some wait for a person."""
_POLL: Final = 0.1
_NOT_FOUND: Final = (
    "credentials not found",
    "no credentials server url",
    "no credentials username",
)
"""How helpers say that they have no login: docker's protocol has no code for it."""


class Credentials:
    """Finds the login for a host. Nothing is kept: a login that was made meanwhile is found.

    In this order: docker's `credHelpers` and `credsStore`, its `auths`; for registries of Google's,
    *google* (by default the Application Default Credentials); otherwise anonymous.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        *,
        google: Callable[[], Login | None] | None = None,
        helper_limit: float = _HELPER_LIMIT,
    ) -> None:
        self._environ = environ
        self._google = google or partial(google_login, environ)
        self._helper_limit = helper_limit

    @property
    def file(self) -> Path | None:
        """The path of docker's `config.json`; None without a home."""
        folder = self._environ.get("DOCKER_CONFIG")
        if folder:
            return Path(folder, "config.json")
        home = self._environ.get("HOME")
        return Path(home, ".docker", "config.json") if home else None

    def login(self, host: str) -> Login:
        """Return the login for *host*, a registry as `names.Reference.host` has it.

        Raises:
            RegistryLoginError: A helper failed, or Google's credentials have expired.
            RegistryUnavailableError: Google's token service did not respond.
            RegistryError: The configuration cannot be read.
        """
        config = self._config()
        found = self._from_helper(host, config) or self._from_file(host, config)
        if found is None and is_google(host):
            found = self._google()
        return found or ANONYMOUS

    def _config(self) -> Mapping[str, Any]:
        path = self.file
        if path is None:
            return {}
        try:
            found: Any = json.loads(path.read_text(encoding="utf-8-sig"))
            why = None if isinstance(found, dict) else "it is no JSON object"
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except OSError as error:
            why = error.strerror
        except (ValueError, RecursionError):
            why = "it is no JSON object"
        if why:
            # The file contains secrets, so nothing of it is quoted, and the cause is dropped.
            raise RegistryError(
                f"The configuration of docker, {path}, cannot be read: {why}.",
                hint="Correct it, or let DOCKER_CONFIG name another folder.",
            )
        return dict(found)

    def _from_helper(self, host: str, config: Mapping[str, Any]) -> Login | None:
        helper = _entry(config.get("credHelpers"), host) or config.get("credsStore")
        if not helper or not isinstance(helper, str):
            return None
        program = f"docker-credential-{helper}"
        server = _DOCKER_HUB_KEY if host == DOCKER_HUB else host
        code, output = self._run(program, server)
        if code != 0:
            if output.decode(errors="replace").strip().lower().startswith(_NOT_FOUND):
                return None
            raise _broken(program, host, f"it failed (exit code {code})")
        try:
            answer = json.loads(output)
            user, secret = answer.get("Username"), answer.get("Secret")
        except (ValueError, AttributeError, RecursionError):
            user = secret = None
        if not isinstance(user, str) or not isinstance(secret, str):
            raise _broken(program, host, "its output is not that of a credential helper") from None
        if not secret:
            return None
        source = f"the credential helper {program}"
        if user == "<token>":
            return Login(identity_token=secret, source=source)
        return Login(username=user, password=secret, source=source)

    def _run(self, program: str, server: str) -> tuple[int, bytes]:
        """Return the exit code and the output of a helper. Its errors may contain secrets: drop them."""
        if "/" in program or "\0" in program:
            raise _broken(program, server, "its name contains a `/` or a NUL")
        try:
            process = subprocess.Popen(
                [program, "get"],
                env=dict(self._environ),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                # Its children keep the pipes open, so that all are killed together.
                start_new_session=True,
            )
        except OSError as error:
            raise _broken(program, server, f"it cannot be run ({error.strerror})") from error
        until = monotonic() + self._helper_limit
        text: bytes | None = server.encode()
        with process:
            try:
                while True:
                    try:
                        output, _ = process.communicate(text, timeout=_POLL)
                        return process.returncode, output
                    except subprocess.TimeoutExpired:
                        text = None  # It is being sent.
                    check_wanted()
                    if monotonic() > until:
                        why = f"it did not end within {self._helper_limit:g} s"
                        raise _broken(program, server, why)
            except BaseException:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                raise

    def _from_file(self, host: str, config: Mapping[str, Any]) -> Login | None:
        entry = _entry(config.get("auths"), host)
        if not isinstance(entry, dict):
            return None
        source = str(self.file)
        texts = {key: value for key, value in entry.items() if isinstance(value, str) and value}
        if "identitytoken" in texts:
            return Login(identity_token=texts["identitytoken"], source=source)
        if "auth" in texts:
            try:
                user, colon, password = (
                    b64decode(texts["auth"], validate=True).decode().partition(":")
                )
            except ValueError:
                colon = ""
            if not colon:
                raise RegistryError(
                    f"The entry of {host!r} in {source} is malformed: `auth` is no user and password.",
                    hint=f"Log in again: docker login {host}",
                ) from None
            return Login(username=user, password=password.rstrip("\0"), source=source)
        return None


def _entry(table: Any, host: str) -> Any:
    """Return what *table*, whose keys are hosts or URLs, has for *host*."""
    if not isinstance(table, dict):
        return None
    own, hosts = host, {host}
    if host == DOCKER_HUB:
        own, hosts = _DOCKER_HUB_KEY, {host, "index.docker.io", "registry-1.docker.io"}
    for exact in (host, own):
        if table.get(exact):
            return table[exact]
    for key, found in table.items():
        # As for docker, `https://HOST/v1/` counts like `HOST`.
        name = key.lower().removeprefix("https://").removeprefix("http://").partition("/")[0]
        if found and name in hosts:
            return found
    return None


def _broken(program: str, server: str, why: str) -> RegistryLoginError:
    host = DOCKER_HUB if server == _DOCKER_HUB_KEY else server
    return RegistryLoginError(
        f"The credential helper {program!r} gave no login to {host}: {why}.",
        hint=f"Docker's configuration names it. To see its error: echo {server} | {program} get",
    )


@dataclass(frozen=True, kw_only=True)
class Login:
    """Credentials for one registry. Its text contains no secret.

    One of *token*, *identity_token* and *password* is set; with none of them, it is anonymous.
    """

    username: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    identity_token: str = field(default="", repr=False)
    """A token that the registry's token service exchanges for others (OAuth 2 refresh token)."""
    token: str = field(default="", repr=False)
    """A token that the registry itself accepts."""
    renew_at: float | None = None
    """When the token is replaced, in seconds since 1970; None: when the registry rejects it."""
    source: str = ""
    """Where it is from, for messages; empty for an anonymous one."""

    @property
    def anonymous(self) -> bool:
        """Whether it has no credentials."""
        return not (self.password or self.identity_token or self.token)

    @property
    def basic(self) -> str | None:
        """The value of the header `Authorization` for basic authentication; None: there is no password."""
        user, password = self.username, self.password
        # https://cloud.google.com/artifact-registry/docs/docker/authentication#token
        if self.token:
            user, password = "oauth2accesstoken", self.token
        if not password:
            return None
        return f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"


ANONYMOUS = Login()


def google_login(environ: Mapping[str, str]) -> Login | None:
    """Return a login with a new token; None without credentials on this machine.

    google-auth reads this process's environment. If *environ* names a key file in
    `GOOGLE_APPLICATION_CREDENTIALS`, that file is used instead.

    Raises:
        RegistryLoginError: The credentials cannot be used, or have expired.
        RegistryUnavailableError: The token service did not respond.
    """
    # Importing google-auth takes a fifth of a second.
    from google.auth.exceptions import DefaultCredentialsError

    from kinetic_payload.http.google import (
        FILE_VARIABLE,
        fresh_credentials,
        google_errors,
        renewal_time,
    )

    file = environ.get(FILE_VARIABLE)
    with google_errors(RegistryLoginError, RegistryUnavailableError):
        try:
            found = fresh_credentials(file=file)
        except DefaultCredentialsError:
            if file is not None:
                raise
            return None
    renew_at = renewal_time(found)
    return Login(
        token=found.token,
        renew_at=None if renew_at is None else renew_at.timestamp(),
        source="Google's default credentials",
    )
