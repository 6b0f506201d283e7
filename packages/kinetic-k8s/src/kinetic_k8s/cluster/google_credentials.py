"""Google's Application Default Credentials, as credentials for API servers."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from typing import Any, Final

from kinetic_k8s.cluster.connection import Credentials
from kinetic_k8s.errors import ClusterUnreachableError, NotAuthenticatedError
from kinetic_payload.http.google import (
    CLOUD_PLATFORM,
    fresh_credentials,
    google_errors,
    renewal_time,
)

SCOPES: Final = (
    CLOUD_PLATFORM,
    # The API server identifies users by their address.
    "https://www.googleapis.com/auth/userinfo.email",
)


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
        with translated():
            found = known if known is not None and known.valid else fresh_credentials(SCOPES)
        headers = {"Authorization": f"Bearer {found.token}"}
        return Credentials(headers=headers, renew_at=renewal_time(found))


def translated() -> AbstractContextManager[None]:
    """Translate the failures of google-auth to Kinetic's errors."""
    return google_errors(NotAuthenticatedError, ClusterUnreachableError)
