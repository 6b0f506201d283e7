"""Google's Application Default Credentials, as credentials for API servers."""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, timedelta
from typing import Any, Final

import google.auth
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError, TransportError
from google.auth.transport.requests import Request

from kinetic_k8s.cluster.connection import Credentials
from kinetic_k8s.errors import ClusterUnreachableError, NotAuthenticatedError

LOGIN: Final = "gcloud auth application-default login"
SCOPES: Final = (
    "https://www.googleapis.com/auth/cloud-platform",
    # The API server identifies users by their address.
    "https://www.googleapis.com/auth/userinfo.email",
)
_EARLY: Final = timedelta(minutes=3, seconds=45)
"""How long before their expiry google-auth counts tokens as expired."""
_TIMEOUT: Final = 20.0
_EXPIRED: Final = ("invalid_grant", "expired", "revoked", "reauth")
"""Words in the errors of google-auth about credentials that need a new login."""


class GoogleCredentials:
    """Returns a new token at each call, with the Application Default Credentials of that moment.

    So a login during a wait is noticed. The first call returns the token of *known*, if it is still valid.
    """

    def __init__(self, known: Any = None) -> None:
        self._lock = threading.Lock()
        self._known = known

    def __call__(self) -> Credentials:
        """Return a token with the time of its renewal.

        Raises:
            NotAuthenticatedError: There are no credentials, or they have expired.
            ClusterUnreachableError: The token service did not respond.
        """
        with self._lock:
            known, self._known = self._known, None
        found = known if known is not None and known.valid else default_credentials()
        renew_at = None
        if found.expiry is not None:  # google-auth's times are naive.
            renew_at = found.expiry.replace(tzinfo=UTC) - _EARLY
        return Credentials(headers={"Authorization": f"Bearer {found.token}"}, renew_at=renew_at)


def default_credentials(limit: float = _TIMEOUT) -> Any:
    """Return google-auth's credentials, with a new token; its request takes at most *limit* seconds.

    Raises:
        NotAuthenticatedError: There are no credentials, or they have expired.
        ClusterUnreachableError: The token service did not respond.
    """
    # google-auth warns about quota projects, which are not needed here. `catch_warnings` is not thread-safe.
    warnings.filterwarnings("ignore", module=r"google\.auth\._default$")
    with translated():
        found, _ = google.auth.default(scopes=SCOPES)
        found.refresh(functools.partial(Request(), timeout=min(limit, _TIMEOUT)))  # type: ignore[no-untyped-call]
    return found


@contextmanager
def translated() -> Iterator[None]:
    """Translate the failures of google-auth to Kinetic's errors."""
    try:
        yield
    except DefaultCredentialsError as error:
        raise NotAuthenticatedError(
            f"There are no usable Google credentials here: {_cause(error)}.",
            hint=f"Log in with: {LOGIN}. Or set GOOGLE_APPLICATION_CREDENTIALS to the path of a key file.",
        ) from error
    except GoogleAuthError as error:
        if isinstance(error, TransportError) or error.retryable:
            raise ClusterUnreachableError(
                f"Google's token service did not respond: {_cause(error)}.",
                hint="Check the network, a VPN or proxy.",
            ) from error
        cause = _cause(error)
        if "scope" in cause:
            raise NotAuthenticatedError(
                f"Google gave no token with the credentials on this machine: {cause}.",
                hint=f"They may be limited to other scopes. Log in again without --scopes: {LOGIN}",
            ) from error
        what = "could not be used"
        if any(word in cause.lower() for word in _EXPIRED):
            what = "have expired or were revoked"
        raise NotAuthenticatedError(
            f"The Google credentials on this machine {what}: {cause}.",
            hint=f"Log in with: {LOGIN}",
        ) from error


def _cause(error: GoogleAuthError) -> str:
    text = str(error.args[0]) if error.args else type(error).__name__
    return " ".join(text.split())[:300].rstrip(".")
