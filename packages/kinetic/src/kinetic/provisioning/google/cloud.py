"""A project of Google Cloud: credentials, addresses of the APIs, retries, and what failures mean."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from time import monotonic
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import requests
from google.api_core import exceptions
from google.api_core.client_options import ClientOptions
from google.oauth2.credentials import Credentials as UserCredentials

from kinetic.errors import (
    CloudPermissionError,
    CloudUnavailableError,
    ConfigurationError,
    ProvisioningError,
)
from kinetic_payload.backoff import Backoff
from kinetic_payload.errors import LoginRequiredError
from kinetic_payload.http.google import CLOUD_PLATFORM, LOGIN, find_credentials, google_errors
from kinetic_payload.threads import pause

T = TypeVar("T")

_CALL: Final = 60.0
_OVERRIDE: Final = "CLOUDSDK_API_ENDPOINT_OVERRIDES_"
"""The variables with which `gcloud`, too, uses another address of an API."""
_PATIENCE: Final = 180.0
"""Seconds for which a change is repeated that others, or earlier changes, stand in the way of."""
_READ: Final = 30.0
"""Seconds for which a service is asked that does not respond."""
_LONGEST: Final = 3600.0
"""Seconds for which a cluster, say, may be changed by Google."""
_LOST: Final = (
    ConnectionError,
    requests.ConnectionError,
    requests.Timeout,
    requests.exceptions.ChunkedEncodingError,
)
"""What the clients of the JSON APIs raise if there is no answer."""
_TRANSIENT: Final = (
    *_LOST,
    exceptions.ServiceUnavailable,
    exceptions.DeadlineExceeded,
    exceptions.InternalServerError,
    exceptions.BadGateway,
    exceptions.GatewayTimeout,
    exceptions.Aborted,
    exceptions.PreconditionFailed,
)
_NOT_YET: Final = re.compile(
    r"service account \S+ does not exist|identity pool does not exist|please wait and try again"
    r"|running incompatible operation|too many operations|concurrent operations quota|concurrent policy changes|is not ready"
    r"|has not been used in project|resourceInUse|already being used by|try again later"
    r"|rateLimitExceeded|RATE_LIMIT_EXCEEDED",
    re.IGNORECASE,
)
"""What services say while they have not heard of, or still work on, an earlier change.

https://cloud.google.com/iam/docs/access-change-propagation
"""
_DISABLED: Final = "SERVICE_DISABLED"
_PERMISSION: Final = re.compile(r"\b[a-z]+\.[a-zA-Z]+\.[a-zA-Z]+\b")
_ROLES: Final = {
    "artifactregistry": "roles/artifactregistry.admin",
    "cloudquotas": "roles/cloudquotas.viewer",
    "compute.firewalls": "roles/compute.securityAdmin",
    "compute": "roles/compute.networkAdmin",
    "container": "roles/container.admin",
    "iam.serviceAccounts.actAs": "roles/iam.serviceAccountUser",
    "iam": "roles/iam.serviceAccountAdmin",
    "resourcemanager.projects.get": "roles/browser",
    "resourcemanager": "roles/resourcemanager.projectIamAdmin",
    "serviceusage": "roles/serviceusage.serviceUsageAdmin",
    "storage": "roles/storage.admin",
}
"""By the beginning of a permission, a role that has it.

https://cloud.google.com/iam/docs/roles-permissions
"""


class Cloud:
    """A project, as this machine's Google credentials see it. Threads can share it."""

    def __init__(
        self,
        project: str,
        variables: Mapping[str, str] = {},
        *,
        patience: float = _PATIENCE,
        timeout: float = _CALL,
        poll: float = 2.0,
    ) -> None:
        """Take the project's id.

        Args:
            project: The id.
            variables: The environment, which may name other addresses of the APIs.
            patience: Seconds for which a change is repeated that an earlier one stands in the way of.
            timeout: Seconds that one call may take.
            poll: Seconds between two looks at an operation.
        """
        self.project = project
        self.number = ""
        """The number of the project, once its APIs were read."""
        self.enabled: frozenset[str] = frozenset()
        """The APIs that were found enabled."""
        self.timeout = timeout
        self.variables = variables
        self._patience = patience
        self._poll = poll
        self.enabling = False
        """Whether an API was enabled just now: others may still say that it is not."""
        self._clients: dict[str, Any] = {}
        self._lock = threading.Lock()

    @cached_property
    def credentials(self) -> Any:
        """google-auth's credentials, which renew themselves.

        Raises:
            ProvisioningLoginError: There are none.
        """
        with google_errors(ProvisioningLoginError, CloudUnavailableError):
            found = find_credentials((CLOUD_PLATFORM,))
        if isinstance(found, UserCredentials) and not found.quota_project_id:
            # Some APIs refuse a person's credentials if they do not say whose quota is used.
            # https://cloud.google.com/docs/quotas/quota-project
            found = found.with_quota_project(self.project)
        return found

    @property
    def member(self) -> str:
        """Who the credentials are of, as IAM names it; a placeholder for a person, whose name they do not have."""
        email = getattr(self.credentials, "service_account_email", None)
        return f"serviceAccount:{email}" if email else "user:YOU@example.com"

    def address(self, service: str) -> str | None:
        """Return another address of the API of a service, such as `compute`; None: Google's own."""
        return self.variables.get(f"{_OVERRIDE}{service.upper()}") or None

    def client(self, service: str, kind: Callable[..., T]) -> T:
        """Return this project's client of a service, of the class *kind*; it is made once."""
        with self._lock:
            if service not in self._clients:
                address = self.address(service.partition(".")[0])
                options = ClientOptions(api_endpoint=urlsplit(address).netloc) if address else None
                self._clients[service] = kind(credentials=self.credentials, client_options=options)
            found: T = self._clients[service]
            return found

    def ask(self, what: str, call: Callable[..., T], **request: Any) -> T | None:
        """Return what *call* finds; None if that does not exist. *what* completes "Could not …".

        With the fields of a *request*, *call* is a method of one of Google's clients.

        Raises:
            ProvisioningError: It failed.
        """

        def is_passing(error: Exception) -> bool:
            disabled = getattr(error, "reason", "") == _DISABLED
            return isinstance(error, exceptions.TooManyRequests) or (self.enabling and disabled)

        patience = self._patience if self.enabling else min(self._patience, _READ)
        with self._translated(what):
            return self._repeated(call, request, exceptions.NotFound, is_passing, patience)

    def change(
        self,
        what: str,
        call: Callable[..., T],
        *,
        made: type[Exception] | tuple[()] = (),
        **request: Any,
    ) -> T | None:
        """Return what *call* returns, a change that may be made twice; see `ask`.

        It is repeated while others, or earlier changes that have not arrived everywhere, stand in its way. If it
        raises *made*, it was made before: None.

        Raises:
            ProvisioningError: It failed.
        """

        def is_passing(error: Exception) -> bool:
            # With the short reasons that Google's APIs add.
            found = getattr(error, "errors", None) or ()
            reasons = [str(each.get("reason", "")) for each in found if isinstance(each, Mapping)]
            texts = [str(error), getattr(error, "reason", "") or "", *reasons]
            return _NOT_YET.search(" ".join(texts)) is not None

        with self._translated(what):
            return self._repeated(call, request, made, is_passing, self._patience)

    def wait(
        self,
        is_done: Callable[[], bool],
        why: Callable[[], str] = lambda: "An operation of Google Cloud has not ended",
        seconds: float = _LONGEST,
    ) -> None:
        """Return once *is_done* returns True; stop when this thread's work is not needed any more.

        Raises:
            CloudUnavailableError: That did not happen in time; *why* says what was seen last.
        """
        until = monotonic() + seconds
        while not is_done():
            if monotonic() > until:
                raise CloudUnavailableError(
                    f"{why()} after {seconds / 60:.0f} minutes.",
                    hint="Run the command again: it continues.",
                )
            pause(self._poll)

    def finish(self, what: str, operation: Any) -> None:
        """Return once a long-running *operation* has ended; None has.

        Raises:
            ProvisioningError: It failed.
        """
        if operation is None:
            return
        self.wait(lambda: bool(self.ask(what, operation.done)))
        with self._translated(what):
            operation.result()

    def _repeated(
        self,
        call: Callable[..., T],
        request: Mapping[str, Any],
        none: type[Exception] | tuple[()],
        is_passing: Callable[[Exception], bool],
        left: float,
    ) -> T | None:
        """Return what *call* returns, or None if it raises *none*; repeat it for *left* seconds at most."""
        backoff = Backoff(first=min(self._poll, 1.0))
        sent = {"request": request, "retry": None, "timeout": self.timeout} if request else {}
        while True:
            try:
                return call(**sent)
            except none:
                return None
            except (*_TRANSIENT, exceptions.GoogleAPICallError) as error:
                if left <= 0 or not (isinstance(error, _TRANSIENT) or is_passing(error)):
                    raise
            seconds = backoff.next()
            left -= max(seconds, 0.01)
            pause(seconds)

    @contextmanager
    def _translated(self, what: str) -> Iterator[None]:
        try:
            with google_errors(ProvisioningLoginError, CloudUnavailableError):
                yield
        except exceptions.GoogleAPICallError as error:
            raise self._error(f"Could not {what}", error) from error
        except (exceptions.RetryError, *_LOST) as error:
            raise CloudUnavailableError(
                f"Could not {what}: the service did not respond: {error}.",
                hint="Check the network, a VPN or proxy, and run the command again: it continues.",
            ) from error

    def _error(self, what: str, error: exceptions.GoogleAPICallError) -> ProvisioningError:
        # Some clients begin with the request.
        text = re.sub(r"^[A-Z]+ https?://\S+: ", "", " ".join(str(error.message).split()))
        text = text[:600].rstrip(".")
        message = f"{what}: {text}."
        if error.code == 401:
            return ProvisioningLoginError(message, hint=f"Log in with: {LOGIN}")
        if error.code == 403 and (error.reason == _DISABLED or "has not been used" in text):
            named = re.search(r"\b[a-z]+\.googleapis\.com\b", text)
            service = (error.metadata or {}).get("service") or (named[0] if named else "SERVICE")
            # Of a person's credentials it may be the project of their quota.
            owner = (error.metadata or {}).get("consumer", "").removeprefix("projects/")
            owner = self.project if owner in ("", self.number) else owner
            enable = f"gcloud services enable {service} --project={owner}"
            return ProvisioningError(message, hint=f"Enable the API: {enable}")
        if error.code == 403:
            named = _PERMISSION.search(text)
            lacking = (error.metadata or {}).get("permission") or (named[0] if named else "")
            return permission_error(message, [lacking] if lacking else [], self)
        if error.code == 429:
            return self.failed(message, "quota")
        if (error.code or 0) >= 500:
            return CloudUnavailableError(message, hint="Run the command again later: it continues.")
        return self.failed(message, text)

    def failed(self, message: str, text: str) -> ProvisioningError:
        """Return the error for a change that failed with *text*, which may name a quota."""
        hint = (
            f"Ask for a higher quota: https://console.cloud.google.com/iam-admin/quotas?project={self.project}"
            "\nThen run the command again: it continues."
        )
        return ProvisioningError(message, hint=hint if "quota" in text.lower() else None)


class ProvisioningLoginError(ProvisioningError, LoginRequiredError):
    """There are no usable Google credentials here."""


def permission_error(
    message: str, permissions: Sequence[str], cloud: Cloud
) -> CloudPermissionError:
    """Return the error for missing *permissions*, with the lines that grant them."""
    roles = list(dict.fromkeys(filter(None, map(role_with, permissions))))
    lines = [
        f"gcloud projects add-iam-policy-binding {cloud.project} --member={cloud.member} --role={role}"
        for role in roles
    ]
    hint = "\n".join(["Ask an owner of the project to run:", *lines]) if lines else None
    error = CloudPermissionError(message, hint=hint)
    error.permissions = tuple(permissions)
    return error


def role_with(permission: str) -> str | None:
    """Return a role that has *permission*; None if it is not one that Kinetic needs."""
    known = (role for start, role in _ROLES.items() if f"{permission}.".startswith(f"{start}."))
    return next(known, None)


def check_project(project: str | None) -> str:
    """Return *project* if it can be the id of a project.

    Raises:
        ConfigurationError: It cannot.
    """
    if not project:
        raise ConfigurationError(
            "No project is named.", hint="Name one with --project or KINETIC_PROJECT."
        )
    if project.isdigit():
        raise ConfigurationError(
            f"{project} is the number of a project; its id is needed, a part of names.",
            hint=f"Find it with: gcloud projects describe {project} --format='value(projectId)'",
        )
    if not re.fullmatch(r"[a-z][a-z0-9-]{4,28}[a-z0-9]", project):
        raise ConfigurationError(
            f"{project!r} is not the id of a project.",
            hint="An id has 6 to 30 lower-case letters, digits and dashes, and begins with a letter.",
        )
    return project
