"""The bucket service to use, with its credentials, as the environment names them."""

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
        file = known.get(_FILE, "")
        if endpoint := known.get(Env.STORAGE_ENDPOINT, ""):
            return cls(_address(endpoint), allow_anonymous=allow_anonymous, credentials_file=file)
        if emulator := known.get("STORAGE_EMULATOR_HOST", ""):
            return cls(_address(emulator), anonymous=True)
        # `google-cloud-storage` reads it, too.
        endpoint = known.get("API_ENDPOINT_OVERRIDE", "")
        return cls(
            _address(endpoint) if endpoint else None,
            allow_anonymous=allow_anonymous,
            credentials_file=file,
        )

    def address(self, credentials: Any, *, mtls: bool) -> str:
        """Return the address of the service for *credentials*; *mtls*: connections use a client certificate.

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
            variable = (
                "GOOGLE_API_USE_MTLS_ENDPOINT=never"
                if wanted == "always"
                else "GOOGLE_API_USE_CLIENT_CERTIFICATE=false"
            )
            raise CredentialsError(
                f"Client certificates are supported in {DEFAULT_UNIVERSE_DOMAIN} only; the credentials are of "
                f"{universe}.",
                hint=f"Set {variable}.",
            )
        return f"https://storage.mtls.{DEFAULT_UNIVERSE_DOMAIN}"

    def credentials(self) -> Any:
        """Find the credentials; tokens are fetched later.

        Raises:
            CredentialsError: There are none, or they cannot be read.
        """
        if self.anonymous:
            return AnonymousCredentials()  # type: ignore[no-untyped-call]
        try:
            # google-auth warns about quota projects, which buckets do not need. `catch_warnings` is not thread-safe.
            warnings.filterwarnings("ignore", module=r"google\.auth\._default$")
            return _default_credentials(self.credentials_file)
        except DefaultCredentialsError as error:
            if self.allow_anonymous and not self.credentials_file:
                return AnonymousCredentials()  # type: ignore[no-untyped-call]
            if self.credentials_file:
                raise CredentialsError(
                    f"The credentials in {self.credentials_file} ({_FILE}) cannot be used: {error}",
                    hint=f"Set {_FILE} to the path of a key file, or unset it. {LOGIN}",
                ) from error
            raise CredentialsError("There are no Google credentials here.", hint=LOGIN) from error


def _default_credentials(file: str) -> Any:
    """Do the same as `google.auth.default`, without looking for a project.

    To find one, it runs `gcloud config get project`, which takes a second. No bucket needs a project.
    """
    path = Path(file) if file else _login_file()
    if file or path.is_file():
        found = google.auth.load_credentials_from_file(str(path))[0]  # type: ignore[no-untyped-call]
    else:
        found = google.auth.default(request=_MetadataRequest())[0]
    # Add scopes here, not while loading: then a user's credentials would be refreshed with them.
    return with_scopes_if_required(found, SCOPES)  # type: ignore[no-untyped-call]


def _login_file() -> Path:
    """Return the file in which `gcloud auth application-default login` stores credentials."""
    configured = os.environ.get("CLOUDSDK_CONFIG")  # noqa: TID251 - gcloud's own variable
    # Without a home folder this path does not exist.
    folder = Path(configured or os.path.expanduser("~/.config/gcloud"))  # noqa: PTH111
    return folder / "application_default_credentials.json"


class _MetadataRequest(google.auth.transport.requests.Request):
    """Looks for the metadata server, and retries only where one is expected.

    Google's library tries three times for three seconds each, with pauses. That is useful on a machine
    of Google's, where the server may need some time after a pod's start, and if the environment names a
    server. Elsewhere a user would wait for nothing.
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
