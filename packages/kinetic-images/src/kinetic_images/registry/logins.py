"""`Login`: who a registry is told that we are."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, field


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
        if (
            self.token
        ):  # https://cloud.google.com/artifact-registry/docs/docker/authentication#token
            user, password = "oauth2accesstoken", self.token
        if not password:
            return None
        return f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"


ANONYMOUS = Login()
