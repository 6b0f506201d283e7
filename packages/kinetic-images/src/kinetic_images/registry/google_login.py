"""Google's Application Default Credentials, as a login to Artifact Registry."""

from __future__ import annotations

from collections.abc import Mapping

from google.auth.exceptions import DefaultCredentialsError

from kinetic_images.errors import RegistryLoginError, RegistryUnavailableError
from kinetic_images.registry.credentials import Login
from kinetic_payload.http.google import (
    FILE_VARIABLE,
    fresh_credentials,
    google_errors,
    renewal_time,
)


def google_login(environ: Mapping[str, str]) -> Login | None:
    """Return a login with a new token; None without credentials on this machine.

    google-auth reads this process's environment. If *environ* names a key file in
    `GOOGLE_APPLICATION_CREDENTIALS`, that file is used instead.

    Raises:
        RegistryLoginError: The credentials cannot be used, or have expired.
        RegistryUnavailableError: The token service did not respond.
    """
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
