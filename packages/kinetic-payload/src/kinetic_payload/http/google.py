"""Google's Application Default Credentials: find them, get tokens, translate their failures."""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import google.auth
import requests
from google.auth.credentials import with_scopes_if_required
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError, TransportError
from google.auth.transport.requests import Request

from kinetic_payload.errors import KineticError

LOGIN: Final = "gcloud auth application-default login"
CLOUD_PLATFORM: Final = "https://www.googleapis.com/auth/cloud-platform"
FILE_VARIABLE: Final = "GOOGLE_APPLICATION_CREDENTIALS"
_METADATA_HOST: Final = "GCE_METADATA_HOST"
_MACHINE: Final = Path("/sys/class/dmi/id/product_name")
_EARLY: Final = timedelta(minutes=3, seconds=45)
"""How long before their expiry google-auth counts tokens as expired."""
_TIMEOUT: Final = 20.0
_EXPIRED: Final = ("invalid_grant", "expired", "revoked", "reauth")
"""Words in the errors of google-auth about credentials that need a new login."""


def find_credentials(scopes: Sequence[str], file: str | None = None) -> Any:
    """Return google-auth's credentials, without a token yet.

    They are those in *file* (default: what the environment names), of `gcloud auth application-default login`, or
    of the machine. Unlike `google.auth.default`, this does not look for a project: that runs
    `gcloud config get project`, which takes a second.

    Raises:
        DefaultCredentialsError: There are none, or they cannot be read.
    """
    # google-auth warns about quota projects, which are not needed here. `catch_warnings` is not thread-safe.
    warnings.filterwarnings("ignore", module=r"google\.auth\._default$")
    named = os.environ.get(FILE_VARIABLE, "") if file is None else file  # noqa: TID251 - Google's variable
    # Where gcloud stores a login. Without a home folder this path does not exist.
    folder = os.environ.get("CLOUDSDK_CONFIG") or os.path.expanduser("~/.config/gcloud")  # noqa: TID251, PTH111
    path = Path(named or f"{folder}/application_default_credentials.json")
    if named or path.is_file():
        found = google.auth.load_credentials_from_file(str(path))[0]  # type: ignore[no-untyped-call]
    else:
        found = google.auth.default(request=_MetadataRequest())[0]
    # Add scopes here, not while loading: then a user's credentials would be refreshed with them.
    return with_scopes_if_required(found, list(scopes))  # type: ignore[no-untyped-call]


def fresh_credentials(
    scopes: Sequence[str] = (CLOUD_PLATFORM,), file: str | None = None, limit: float = _TIMEOUT
) -> Any:
    """Return credentials with a new token; its request takes at most *limit* seconds.

    Raises:
        GoogleAuthError: There are none, or there was no token for them.
    """
    found = find_credentials(scopes, file)
    found.refresh(functools.partial(Request(), timeout=min(limit, _TIMEOUT)))
    return found


def renewal_time(credentials: Any) -> datetime | None:
    """Return when the token of *credentials* should be replaced; None: when it is rejected."""
    if credentials.expiry is None:
        return None
    renew_at: datetime = credentials.expiry.replace(tzinfo=UTC) - _EARLY  # It is naive.
    # A token that is valid for a moment only is used until it is rejected.
    return renew_at if renew_at > datetime.now(UTC) else None


@contextmanager
def google_errors(login: type[KineticError], unavailable: type[KineticError]) -> Iterator[None]:
    """Translate the failures of google-auth: to *login*, or to *unavailable* if its service did not respond."""
    try:
        yield
    except GoogleAuthError as error:
        raise _explained(error, login, unavailable) from error


def _explained(
    error: GoogleAuthError, login: type[KineticError], unavailable: type[KineticError]
) -> KineticError:
    # The arguments are a message, and the same as data.
    cause = " ".join(str(error.args[0] if error.args else error).split())[:300].rstrip(".")
    log_in = f"Log in with: {LOGIN}"
    if isinstance(error, DefaultCredentialsError):
        return login(
            f"There are no usable Google credentials here: {cause}.",
            hint=f"{log_in}. Or set {FILE_VARIABLE} to the path of a key file.",
        )
    if isinstance(error, TransportError) or error.retryable:
        return unavailable(
            f"Google's token service did not respond: {cause}.",
            hint="Check the network, a VPN or proxy.",
        )
    if "scope" in cause:
        return login(
            f"Google gave no token with the credentials on this machine: {cause}.",
            hint=f"They may be limited to other scopes. Log in again without --scopes: {LOGIN}",
        )
    what = "could not be used"
    if any(word in cause.lower() for word in _EXPIRED):
        what = "have expired or were revoked"
    return login(f"The Google credentials on this machine {what}: {cause}.", hint=log_in)


class _MetadataRequest(Request):
    """Looks for the metadata server, and retries only where one is expected.

    Google's library tries three times for three seconds each, with pauses. That is useful on a machine
    of Google's, where the server may need some time after a pod's start, and if the environment names a
    server. Elsewhere a user would wait for nothing.
    """

    def __init__(self) -> None:
        super().__init__(requests.Session())

    def __call__(self, url: str, *args: Any, **kwargs: Any) -> Any:
        on_google = False
        with suppress(OSError):
            on_google = _MACHINE.read_text().startswith("Google")
        if on_google or _METADATA_HOST in os.environ:  # noqa: TID251 - Google's variable
            return super().__call__(url, *args, **kwargs)  # type: ignore[no-untyped-call]
        try:
            return super().__call__(url, *args, **{**kwargs, "timeout": 1})  # type: ignore[no-untyped-call]
        except TransportError as error:
            raise DefaultCredentialsError("There is no metadata server.") from error  # type: ignore[no-untyped-call]
