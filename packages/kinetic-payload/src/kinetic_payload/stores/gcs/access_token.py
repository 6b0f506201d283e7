"""Access tokens of the Application Default Credentials, for other services of Google Cloud."""

from __future__ import annotations

from typing import Final

_SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"


def access_token() -> str:
    """Return a token of this machine's default credentials, in a pod those of its service account.

    It is valid for an hour or less.

    Raises:
        google.auth.exceptions.GoogleAuthError: There are none, or they are refused.
    """
    import google.auth
    from google.auth.transport.requests import Request

    credentials, _ = google.auth.default(scopes=[_SCOPE])
    credentials.refresh(Request())  # type: ignore[no-untyped-call]
    return str(credentials.token)
