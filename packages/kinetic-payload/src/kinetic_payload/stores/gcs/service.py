"""Which bucket service to speak to, and as whom: the one place that chooses."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import google.auth
import google.auth.transport.requests
import requests
from google.auth.credentials import (
    DEFAULT_UNIVERSE_DOMAIN,
    AnonymousCredentials,
    with_scopes_if_required,
)
from google.auth.exceptions import DefaultCredentialsError, TransportError

from kinetic_payload.errors import CredentialsError
from kinetic_payload.layout import Env

SCOPES: Final = ("https://www.googleapis.com/auth/devstorage.read_write",)
LOGIN: Final = "Log in with: gcloud auth application-default login"
_FILE: Final = "GOOGLE_APPLICATION_CREDENTIALS"
_METADATA_HOST: Final = "GCE_METADATA_HOST"
_MACHINE: Final = Path("/sys/class/dmi/id/product_name")


@dataclass(frozen=True)
class Service:
    """A bucket service, and how to identify there. What is equal shares one client."""

    endpoint: str | None = None
    """Its address; None: Google's own."""
    anonymous: bool = False
    """Whether to come as nobody, as one does to emulators."""
    allow_anonymous: bool = False
    """Whether to come as nobody where there are no credentials: enough for public buckets."""
    credentials_file: str = ""
    """What the environment said where it was chosen; for telling services apart."""

    @classmethod
    def from_environment(
        cls, environment: Mapping[str, str] | None = None, *, allow_anonymous: bool = False
    ) -> Service:
        """Return the one that the environment asks for.

        `KINETIC_STORAGE_ENDPOINT` is an address, with credentials as usual; `STORAGE_EMULATOR_HOST`
        one without. Credentials are Application Default Credentials.
        """
        # Google's libraries read these variables themselves, and everything that uses buckets has
        # to agree with them.
        known = os.environ if environment is None else environment  # noqa: TID251
        file = known.get(_FILE, "")
        if endpoint := known.get(Env.STORAGE_ENDPOINT, ""):
            return cls(_address(endpoint), allow_anonymous=allow_anonymous, credentials_file=file)
        if emulator := known.get("STORAGE_EMULATOR_HOST", ""):
            return cls(_address(emulator), anonymous=True)
        # Known to `google-cloud-storage` only.
        endpoint = known.get("API_ENDPOINT_OVERRIDE", "")
        return cls(
            _address(endpoint) if endpoint else None,
            allow_anonymous=allow_anonymous,
            credentials_file=file,
        )

    def address(self, credentials: Any, *, mtls: bool) -> str:
        """Return the address of the service for *credentials*, whose connections are *mtls* or not.

        Raises:
            CredentialsError: There is no such service.
        """
        if self.endpoint:
            return self.endpoint
        universe: str = credentials.universe_domain
        wanted = os.environ.get("GOOGLE_API_USE_MTLS_ENDPOINT", "auto")  # noqa: TID251 - Google's variable
        if wanted != "always" and (wanted == "never" or not mtls):
            return f"https://storage.{universe}"
        if universe != DEFAULT_UNIVERSE_DOMAIN:
            raise CredentialsError(
                f"Client certificates are supported in {DEFAULT_UNIVERSE_DOMAIN} only; the credentials are of "
                f"{universe}.",
                hint="Set GOOGLE_API_USE_CLIENT_CERTIFICATE=false.",
            )
        return f"https://storage.mtls.{DEFAULT_UNIVERSE_DOMAIN}"

    def credentials(self) -> Any:
        """Find the credentials to come with; tokens are fetched later.

        Raises:
            CredentialsError: There are none, or they cannot be read.
        """
        if self.anonymous:
            return AnonymousCredentials()  # type: ignore[no-untyped-call]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # About quota projects: buckets need none.
                return _default_credentials(self.credentials_file)
        except DefaultCredentialsError as error:
            if self.allow_anonymous and not self.credentials_file:
                return AnonymousCredentials()  # type: ignore[no-untyped-call]
            if self.credentials_file:
                raise CredentialsError(
                    f"The credentials in {self.credentials_file} ({_FILE}) cannot be used: {error}",
                    hint=f"Let {_FILE} name a key file, or unset it. {LOGIN}",
                ) from error
            raise CredentialsError("There are no Google credentials here.", hint=LOGIN) from error


def _default_credentials(file: str) -> Any:
    """As `google.auth.default`, without what it does only to learn a project's name.

    That is running `gcloud config get project`: a second, for what no bucket needs.
    """
    path = Path(file) if file else _login_file()
    if file or path.is_file():
        found = google.auth.load_credentials_from_file(str(path))[0]  # type: ignore[no-untyped-call]
    else:
        found = google.auth.default(request=_MetadataRequest())[0]
    # Not before: what is refreshed for a person must not name scopes.
    return with_scopes_if_required(found, SCOPES)  # type: ignore[no-untyped-call]


def _login_file() -> Path:
    """Return where `gcloud auth application-default login` leaves credentials."""
    configured = os.environ.get("CLOUDSDK_CONFIG")  # noqa: TID251 - gcloud's own variable
    # Of a user without a home it is a name that nothing has.
    folder = Path(configured or os.path.expanduser("~/.config/gcloud"))  # noqa: PTH111
    return folder / "application_default_credentials.json"


class _MetadataRequest(google.auth.transport.requests.Request):
    """Asks for the metadata server with retry only where there should be one.

    Google's library tries three times for three seconds each, with pauses. On a machine of theirs
    that is right: at a pod's start it may need them; and where the environment names one. Elsewhere
    it is a person who waits for nothing.
    """

    def __init__(self) -> None:
        super().__init__(requests.Session())

    def __call__(self, url: str, *args: Any, **kwargs: Any) -> Any:
        if _on_google_machine() or _METADATA_HOST in os.environ:  # noqa: TID251 - Google's variable
            return super().__call__(url, *args, **kwargs)  # type: ignore[no-untyped-call]
        try:
            return super().__call__(url, *args, **{**kwargs, "timeout": 1})  # type: ignore[no-untyped-call]
        except TransportError as error:
            raise DefaultCredentialsError("There is no metadata server.") from error  # type: ignore[no-untyped-call]


def _on_google_machine() -> bool:
    try:
        return _MACHINE.read_text().startswith("Google")
    except OSError:
        return False


def _address(text: str) -> str:
    text = text.rstrip("/")
    return text if "://" in text else f"http://{text}"
