"""Translation of a registry's failures to Kinetic's errors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from kinetic_images.credentials import without_credentials
from kinetic_images.errors import (
    ImageNotFoundError,
    RegistryError,
    RegistryLoginError,
    RegistryPermissionError,
    RegistryUnavailableError,
)
from kinetic_images.registry.names import DOCKER_HUB, is_google
from kinetic_payload.http.retry import TRANSIENT_STATUSES, retry_after

Right = Literal["pull", "push"]

_NO_NAME: Final = "NAME_UNKNOWN"
_LONGEST_TEXT: Final = 500
_GOOGLE_ROLES: Final = {
    "pull": "roles/artifactregistry.reader",
    "push": "roles/artifactregistry.writer",
}


@dataclass(frozen=True, kw_only=True)
class Call:
    """What a request is for, for messages, and what it needs."""

    host: str
    path: str
    """The repository in the registry."""
    doing: str
    """Such as `read the image 3.11`: what follows `Could not`."""
    right: Right = "pull"
    other: str = ""
    """Another repository of the registry that it reads."""

    @property
    def repository(self) -> str:
        """`HOST/PATH`."""
        return f"{self.host}/{self.path}"

    @property
    def scopes(self) -> tuple[str, ...]:
        """The scopes of the token that it needs."""
        actions = "pull" if self.right == "pull" else "pull,push"
        other = (f"repository:{self.other}:pull",) if self.other else ()
        return (f"repository:{self.path}:{actions}", *other)

    def __str__(self) -> str:
        return f"{self.doing} in {self.repository}"


@dataclass(frozen=True)
class Refusal:
    """A response with a status of 400 or above."""

    status: int
    codes: tuple[str, ...] = ()
    """The registry's own codes, such as `MANIFEST_UNKNOWN`."""
    text: str = ""
    """The registry's own words."""
    retry_after: float = 0.0
    """Seconds after which the registry asks for the next request."""
    genuine: bool = field(default=False)
    """Whether it has the form of a registry's response, so that it is not the page of a proxy."""

    @classmethod
    def of(cls, status: int, headers: Mapping[str, str], body: bytes) -> Refusal:
        """Read a response."""
        codes, texts, structured = _errors(body)
        if not texts and body and not structured:
            texts = [" ".join(body.decode(errors="replace").split())]
        kind = headers.get("Content-Type", "").partition(";")[0].strip().lower()
        # The response to HEAD has no body.
        by_header = "Docker-Distribution-Api-Version" in headers or kind.endswith("json")
        return cls(
            status,
            tuple(codes),
            without_credentials("; ".join(texts))[:_LONGEST_TEXT].rstrip("."),
            retry_after(headers),
            genuine=structured or (not body and by_header),
        )

    @property
    def transient(self) -> bool:
        """Whether the same request may succeed a little later."""
        return self.status in TRANSIENT_STATUSES

    @property
    def absent(self) -> bool:
        """Whether the registry itself says that there is no such thing."""
        return self.status == 404 and self.genuine

    def __str__(self) -> str:
        words = f"{', '.join(self.codes)}: {self.text}" if self.codes else self.text
        return f"status {self.status}" + (f" ({words})" if words else "")


def error_of(refusal: Refusal, call: Call, login: str) -> RegistryError:
    """Return the error for *refusal* of a request; *login* is the source of its credentials, or empty."""
    text = f"Could not {call}: {refusal}."
    if refusal.status == 401:
        return login_error(call, login, str(refusal))
    if refusal.status == 403:
        return RegistryPermissionError(
            f"{text} The right to {call.right} is missing; the request was made with "
            f"{login or 'no login'}.",
            hint=_permission_hint(call),
        )
    if refusal.absent:
        missing = call.path if _NO_NAME in refusal.codes else ""
        hint = "Check the name and the tag."
        if missing:
            hint = f"Check that the repository {call.repository} exists."
            if is_google(call.host):
                hint += " Create it with: gcloud artifacts repositories create"
        return ImageNotFoundError(text, hint=hint)
    if refusal.transient:
        return unavailable(call, str(refusal), limited=refusal.status == 429)
    if refusal.status == 404:
        return RegistryError(text, hint="The response is not that of a registry. Check the host.")
    return RegistryError(text)


def login_error(call: Call, login: str, seen: str) -> RegistryLoginError:
    """Return the error for credentials that are missing, or that the registry rejects.

    *login* is their source; empty: there are none.
    """
    if is_google(call.host):
        hint = "Log in with: gcloud auth application-default login"
    else:
        hint = f"Log in with: docker login {'' if call.host == DOCKER_HUB else call.host}".rstrip()
        hint += ". Registries also respond like this if there is no such repository."
    what = f"does not accept {login}" if login else "requires a login, and there is none"
    return RegistryLoginError(f"Could not {call}: the registry {what}: {seen}.", hint=hint)


def unavailable(call: Call, seen: str, *, limited: bool = False) -> RegistryUnavailableError:
    """Return the error for a registry that gave no usable response in time."""
    hint = "Check the network, a VPN or proxy, and the status page of the registry."
    if limited:
        hint = "The registry limits the number of requests. Try again later"
        hint += ", or log in for a higher limit: docker login" if call.host == DOCKER_HUB else "."
    return RegistryUnavailableError(f"Could not {call}: {seen}.", hint=hint)


def _permission_hint(call: Call) -> str:
    if is_google(call.host):
        role = _GOOGLE_ROLES[call.right]
        return f"Ask for the role {role} on the repository {call.repository}."
    return f"Ask the owner of {call.repository} for the right to {call.right}, or log in as another user."


def _errors(body: bytes) -> tuple[list[str], list[str], bool]:
    """Return codes and messages of the registry's JSON, and whether *body* has that form."""
    try:
        found: Any = json.loads(body)
    except (ValueError, RecursionError):
        return [], [], False
    listed = found.get("errors") if isinstance(found, dict) else None
    if not isinstance(listed, list):
        return [], [], False
    errors = [each for each in listed if isinstance(each, dict)][:5]
    codes = [str(each["code"])[:60] for each in errors if each.get("code")]
    texts = [" ".join(str(each["message"]).split()) for each in errors if each.get("message")]
    return codes, texts, True
