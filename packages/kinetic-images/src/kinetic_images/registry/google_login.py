"""Google's Application Default Credentials, as a login to Artifact Registry."""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import google.auth
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError, TransportError
from google.auth.transport.requests import Request

from kinetic_images.errors import RegistryLoginError, RegistryUnavailableError
from kinetic_images.registry.logins import Login

LOGIN: Final = "gcloud auth application-default login"
_SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"
_EARLY: Final = timedelta(minutes=3, seconds=45)
"""How long before their expiry google-auth counts tokens as expired."""
_TIMEOUT: Final = 20.0
_VARIABLE: Final = "GOOGLE_APPLICATION_CREDENTIALS"


class GoogleLogin:
    """Provides logins with the Application Default Credentials of the moment of each call.

    google-auth reads this process's environment. If *environ* names a key file in
    `GOOGLE_APPLICATION_CREDENTIALS`, that file is used instead.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._file = environ.get(_VARIABLE)
        self._lock = threading.Lock()

    def __call__(self) -> Login | None:
        """Return a login with a new token; None without credentials on this machine.

        Raises:
            RegistryLoginError: The credentials cannot be used, or have expired.
            RegistryUnavailableError: The token service did not respond.
        """
        # google-auth warns about quota projects, which are not needed here.
        warnings.filterwarnings("ignore", module=r"google\.auth\._default$")
        try:
            with self._lock:
                found = self._credentials()
                found.refresh(functools.partial(Request(), timeout=_TIMEOUT))
        except DefaultCredentialsError as error:
            if self._file is None:
                return None
            raise RegistryLoginError(
                f"The Google credentials that {_VARIABLE} names cannot be used: {_cause(error)}.",
                hint=f"Correct or unset {_VARIABLE}. Or log in with: {LOGIN}",
            ) from error
        except GoogleAuthError as error:
            if isinstance(error, TransportError) or error.retryable:
                raise RegistryUnavailableError(
                    f"Google's token service did not respond: {_cause(error)}.",
                    hint="Check the network, a VPN or proxy.",
                ) from error
            raise RegistryLoginError(
                f"The Google credentials on this machine could not be used: {_cause(error)}.",
                hint=f"Log in with: {LOGIN}",
            ) from error
        renew_at = None
        if found.expiry is not None:  # google-auth's times are naive.
            renew_at = (found.expiry.replace(tzinfo=UTC) - _EARLY).timestamp()
        if renew_at is not None and renew_at <= datetime.now(UTC).timestamp():
            renew_at = None  # The token is valid for a moment only: use it until it is rejected.
        return Login(token=found.token, renew_at=renew_at, source="Google's default credentials")

    def _credentials(self) -> Any:
        if self._file is not None:
            found, _ = google.auth.load_credentials_from_file(self._file, scopes=[_SCOPE])  # type: ignore[no-untyped-call]
        else:
            found, _ = google.auth.default(scopes=[_SCOPE])
        return found


def _cause(error: GoogleAuthError) -> str:
    text = str(error.args[0]) if error.args else type(error).__name__
    return " ".join(text.split())[:300].rstrip(".")
