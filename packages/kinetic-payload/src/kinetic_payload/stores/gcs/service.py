"""The bucket service to use, with its credentials, as the environment names them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from google.auth.credentials import AnonymousCredentials
from google.auth.exceptions import DefaultCredentialsError

from kinetic_payload.errors import CredentialsError
from kinetic_payload.http.google import FILE_VARIABLE, find_credentials
from kinetic_payload.http.google import LOGIN as LOGIN_COMMAND
from kinetic_payload.layout import Env

SCOPES: Final = ("https://www.googleapis.com/auth/devstorage.read_write",)
LOGIN: Final = f"Log in with: {LOGIN_COMMAND}"


@dataclass(frozen=True)
class Service:
    """A bucket service and the credentials for it. Equal services share a connection."""

    endpoint: str | None = None
    """Its address; None for Google's own."""
    anonymous: bool = False
    """Whether to send no credentials, which is for emulators."""
    allow_anonymous: bool = False
    """Whether to send no credentials if there are none, which suffices for public buckets."""
    credentials_file: str = ""
    """The file that the environment names; services with other files are not equal."""

    @classmethod
    def from_environment(
        cls, environment: Mapping[str, str] | None = None, *, allow_anonymous: bool = False
    ) -> Service:
        """Return the service that the environment names.

        `KINETIC_STORAGE_ENDPOINT` is an address to use with credentials, `STORAGE_EMULATOR_HOST` one
        without. Credentials are Application Default Credentials.
        """
        # Google's libraries read these variables, and everything that uses buckets must agree with them.
        known = os.environ if environment is None else environment  # noqa: TID251
        file = known.get(FILE_VARIABLE, "")
        endpoint = known.get(Env.STORAGE_ENDPOINT, "")
        if not endpoint and (emulator := known.get("STORAGE_EMULATOR_HOST", "")):
            return cls(_address(emulator), anonymous=True)
        return cls(
            _address(endpoint) if endpoint else None,
            allow_anonymous=allow_anonymous,
            credentials_file=file,
        )

    def address(self, credentials: Any) -> str:
        """Return the address of the service for *credentials*."""
        return self.endpoint or f"https://storage.{credentials.universe_domain}"

    def credentials(self) -> Any:
        """Find the credentials; tokens are fetched later.

        Raises:
            CredentialsError: There are none, or they cannot be read.
        """
        if self.anonymous:
            return AnonymousCredentials()  # type: ignore[no-untyped-call]
        try:
            return find_credentials(SCOPES, self.credentials_file)
        except DefaultCredentialsError as error:
            if self.allow_anonymous and not self.credentials_file:
                return AnonymousCredentials()  # type: ignore[no-untyped-call]
            if self.credentials_file:
                raise CredentialsError(
                    f"The credentials in {self.credentials_file} ({FILE_VARIABLE}) cannot be used: {error}",
                    hint=f"Set {FILE_VARIABLE} to the path of a key file, or unset it. {LOGIN}",
                ) from error
            raise CredentialsError("There are no Google credentials here.", hint=LOGIN) from error


def _address(text: str) -> str:
    text = text.rstrip("/")
    return text if "://" in text else f"http://{text}"
