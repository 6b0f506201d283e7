"""Errors of requests → errors of Kinetic, with hints."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from google.auth.exceptions import GoogleAuthError

from kinetic_payload.errors import (
    BucketNotFoundError,
    CredentialsError,
    IntegrityError,
    KineticError,
    ObjectNotFoundError,
    PreconditionFailedError,
    StoreError,
    StorePermissionError,
    StoreUnavailableError,
)
from kinetic_payload.http.session import NoResponseError, cause_text, is_untrusted
from kinetic_payload.stores.gcs.errors import ResponseError, RetryError
from kinetic_payload.stores.gcs.service import LOGIN

_DENIED: Final = re.compile(r"(\S+) does not have (storage\.\S+) access")
_PERMISSION: Final = re.compile(r"storage\.[a-zA-Z]+\.[a-zA-Z]+")
_READING: Final = frozenset({"storage.objects.get", "storage.objects.list"})
_TRY_LATER: Final = (
    "Try again later; nothing is lost. If the network has a login page or a proxy, log in to it, or check HTTPS_PROXY "
    "and NO_PROXY."
)
_INTERCEPTED: Final = (
    "A captive portal may be in the way: log in to the network (open any http:// page in a browser). "
    "Behind a proxy with certificates of its own, set REQUESTS_CA_BUNDLE to their file. If this machine's "
    "clock is wrong, set it."
)


@contextmanager
def translated(bucket: str, action: str, principal: str = "") -> Iterator[None]:
    """Translate the errors of an *action* in *bucket*."""
    try:
        yield
    except KineticError:
        raise
    except RetryError as error:
        last, failed = error.__cause__, f"Could not {action} in gs://{bucket}"
        if last is not None and is_untrusted(last):
            text = f"{failed}: the server's certificate is not trusted: {cause_text(last)}"
            unavailable = StoreUnavailableError(text, hint=_INTERCEPTED)
        else:
            what = "no response" if last is None else described_error(last)
            text = f"{failed}, even after retries. Last error: {what}"
            unavailable = StoreUnavailableError(text, hint=_TRY_LATER)
        unavailable.sent = error.sent
        raise unavailable from last
    except ResponseError as error:
        raise refusal(error, bucket, action, principal) from error
    except GoogleAuthError as error:
        raise CredentialsError(
            f"Could not {action} in gs://{bucket}: the Google credentials do not work: {_line(error)}",
            hint=LOGIN,
        ) from error
    except NoResponseError as error:
        raise StoreError(f"Could not {action} in gs://{bucket}: {error.reason}.") from error


def refusal(error: ResponseError, bucket: str, action: str, principal: str = "") -> KineticError:
    """Return Kinetic's error for a refusal."""
    message = error.message
    failed = f"Could not {action} in gs://{bucket}"
    if error.code == 401:
        return CredentialsError(
            f"{failed}: the credentials are not accepted: {message}", hint=LOGIN
        )
    if error.code == 412:
        return PreconditionFailedError(f"{failed}: it does not have the expected generation.")
    if error.code == 404:
        if is_no_bucket(error):
            return no_bucket(bucket)
        return ObjectNotFoundError(f"{failed}: it does not exist.")
    if "billing" in message.lower() or "accountDisabled" in message:
        return StoreError(
            f"{failed}: billing is disabled for its project: {message}",
            hint="Link a billing account: https://console.cloud.google.com/billing/projects",
        )
    if error.code == 403:
        return _denied(message, bucket, failed, principal)
    if error.code == 400 and "match calculated" in message:
        return IntegrityError(
            f"{failed}: its bytes changed in transit: {message}", hint="Try again."
        )
    return StoreError(f"{failed}: {message} ({error.code})")


def no_bucket(bucket: str) -> KineticError:
    """Return the error for a bucket that does not exist."""
    return BucketNotFoundError(
        f"There is no bucket gs://{bucket}.",
        hint=f"Check its name, or create it: gcloud storage buckets create gs://{bucket} --location=REGION",
    )


def is_no_bucket(error: ResponseError) -> bool:
    """Return whether a 404 is about the bucket, not about an object in it."""
    message = error.message.lower()
    return "bucket" in message and "no such object" not in message


def _denied(message: str, bucket: str, failed: str, principal: str) -> KineticError:
    match = _DENIED.search(message)
    named = _PERMISSION.search(message)
    permission = named[0] if named else ""
    who = match[1] if match and "@" in match[1] else principal
    role = "objectViewer" if permission in _READING else "objectUser"
    member = who or "$(gcloud config get account)"
    if ":" not in who:
        kind = "serviceAccount" if who.endswith("gserviceaccount.com") else "user"
        member = f"{kind}:{member}"
    grant = (
        f"Ask the bucket's owner to run: gcloud storage buckets add-iam-policy-binding gs://{bucket} "
        f"--member={member} --role=roles/storage.{role}"
    )
    if not permission:
        # No role is missing: an organisation's policy, a retention policy or a service perimeter forbids it.
        return StorePermissionError(f"{failed}: {message}", hint=None if message else grant)
    return StorePermissionError(
        f"{failed}: {who or 'your account'} does not have {permission} on gs://{bucket}.",
        hint=grant,
    )


def described_error(error: BaseException) -> str:
    """Describe a transient error in one line."""
    if isinstance(error, ResponseError):
        return f"{error.message} ({error.code})"
    return error.reason if isinstance(error, NoResponseError) else _line(error)


def _line(error: BaseException) -> str:
    """Return the message of an error of google-auth, whose arguments are that and the same as data."""
    if error.args and isinstance(error.args[0], str):
        return " ".join(error.args[0].split())[:500]
    return cause_text(error)
