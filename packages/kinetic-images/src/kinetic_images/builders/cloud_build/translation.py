"""Failures of Google's client → errors that name the role, the command or the setting."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from google.api_core import exceptions

from kinetic_images.builders.cloud_build.settings import CloudBuildSettings
from kinetic_images.errors import (
    BuilderError,
    BuildQuotaError,
    BuildServiceDisabledError,
    BuildServiceLoginError,
    BuildServicePermissionError,
    BuildServiceUnavailableError,
    InvalidBuildError,
)
from kinetic_payload.http.google import LOGIN, google_errors

_PLUGIN: Final = "Getting metadata from plugin failed"
"""gRPC reports failures of credentials as an unavailable service, with this text."""
_NETWORK: Final = ("TransportError", "ConnectionError", "Timeout", "Max retries")
_LOST: Final = (
    exceptions.ServiceUnavailable,
    exceptions.DeadlineExceeded,
    exceptions.InternalServerError,
    exceptions.GatewayTimeout,
    exceptions.BadGateway,
    exceptions.Unknown,
    exceptions.Aborted,
    exceptions.Cancelled,
    exceptions.TooManyRequests,
    exceptions.RetryError,
)


@contextmanager
def translated(verb: str, settings: CloudBuildSettings) -> Iterator[None]:
    """Translate the failures of Google's client in the block; *verb* names what was tried."""
    what = f"Could not {verb} in the project {settings.project!r} ({settings.region})"
    try:
        with google_errors(BuildServiceLoginError, BuildServiceUnavailableError):
            yield
    except exceptions.Unauthenticated as error:
        raise _login(f"{what}: {_message(error)}.") from error
    except exceptions.PermissionDenied as error:
        raise _refused(error, what, settings) from error
    except exceptions.GoogleAPICallError as error:
        raise _failure(error, what, settings) from error
    except exceptions.RetryError as error:
        raise _unavailable(what, _message(error)) from error


def _login(message: str) -> BuildServiceLoginError:
    return BuildServiceLoginError(message, hint=f"Log in with: {LOGIN}")


def _unavailable(what: str, message: str) -> BuildServiceUnavailableError:
    return BuildServiceUnavailableError(
        f"{what}: {message}.", hint="Check the network, a VPN or proxy. Try again later."
    )


def _refused(
    error: exceptions.PermissionDenied, what: str, settings: CloudBuildSettings
) -> BuilderError:
    message = f"{what}: {_message(error)}."
    if error.reason == "SERVICE_DISABLED" or "has not been used in project" in message:
        return BuildServiceDisabledError(
            message,
            hint="Enable the Cloud Build API: gcloud services enable cloudbuild.googleapis.com "
            f"--project={settings.project}",
        )
    if "actAs" in message or "serviceAccounts.actAs" in message:
        return BuildServicePermissionError(
            message,
            hint="You need the role roles/iam.serviceAccountUser on the account of builds, "
            f"{settings.service_account or 'the default one of the project'}.",
        )
    return BuildServicePermissionError(
        message,
        hint=f"You need the role roles/cloudbuild.builds.editor in the project {settings.project!r}. Ask its "
        "administrator; and check that the project's name is right.",
    )


def _failure(
    error: exceptions.GoogleAPICallError, what: str, settings: CloudBuildSettings
) -> BuilderError:
    message = _message(error)
    if "quota" in message.lower() or isinstance(error, exceptions.ResourceExhausted):
        return BuildQuotaError(
            f"{what}: {message}.",
            hint="Wait for other builds, or use another region or machine type. The quotas: "
            f"https://console.cloud.google.com/iam-admin/quotas?project={settings.project}"
            "&service=cloudbuild.googleapis.com",
        )
    if _PLUGIN in message:
        if any(word in message for word in _NETWORK):
            return _unavailable(what, message)
        return _login(f"{what}: {message}.")
    if isinstance(error, _LOST):
        return _unavailable(what, message)
    if not isinstance(
        error, exceptions.InvalidArgument | exceptions.NotFound | exceptions.FailedPrecondition
    ):
        return BuilderError(f"{what}: {message}.", hint="Cloud Build gave this response.")
    lowered = message.lower()
    if "service account" in lowered or "serviceaccount" in lowered:
        account = settings.service_account or "the default account"
        hint = f"Check that {account} exists and is enabled in the project {settings.project!r}."
    elif "location" in lowered or "region" in lowered:
        hint = (
            f"{settings.region!r} may not be a region of Cloud Build. The list: "
            "https://cloud.google.com/build/docs/locations"
        )
    elif "machine" in lowered:
        hint = (
            f"The machine type {settings.machine_type} may not be available in {settings.region}."
        )
    else:
        hint = "Check the project, the region, the machine type and the service account of builds."
    return InvalidBuildError(f"{what}: {message}.", hint=hint)


def _message(error: Exception) -> str:
    text = getattr(error, "message", None) or str(error)
    return " ".join(str(text).split())[:500].rstrip(".")
