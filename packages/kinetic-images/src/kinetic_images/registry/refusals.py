"""Refusals of registries: what their responses say, and the error that helps."""

from __future__ import annotations

import json
import re
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
from kinetic_payload.http.session import Response

Right = Literal["pull", "push"]

LARGEST_ANSWER: Final = 1 << 20
"""The most bytes of a response that is no content of an image."""
_NO_NAME: Final = "NAME_UNKNOWN"
_LONGEST_TEXT: Final = 500
_LONGEST_HEADER: Final = 4096
_TOKEN: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"  # noqa: S105 - the grammar's word, RFC 9110
_CHALLENGE: Final = re.compile(
    rf'(?P<name>{_TOKEN})\s*=\s*(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>{_TOKEN}))'
    rf"|(?P<scheme>{_TOKEN})(?=\s|,|$)"
)
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
class Challenge:
    """One way to authenticate."""

    scheme: str
    """In lower case: `bearer`, `basic`."""
    parameters: dict[str, str] = field(default_factory=dict)
    """Names in lower case: `realm`, `service`, `scope`, `error`."""


def parse_challenges(header: str) -> tuple[Challenge, ...]:
    """Read the header `WWW-Authenticate`, which may list several. Skip what is malformed."""
    found: list[Challenge] = []
    for part in _CHALLENGE.finditer(header[:_LONGEST_HEADER]):
        if part["scheme"]:
            found.append(Challenge(part["scheme"].lower()))
        elif found:
            quoted = part["quoted"]
            value = part["plain"] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
            found[-1].parameters.setdefault(part["name"].lower(), value)
    return tuple(found)


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
    genuine: bool = False
    """Whether it has the form of a registry's response, so that it is not the page of a proxy."""
    challenges: tuple[Challenge, ...] = ()
    """How it asks for credentials."""

    @classmethod
    def of(cls, response: Response) -> Refusal:
        """Read a response, whose codes and messages are in JSON if it is that of a registry."""
        body, headers = response.data, response.headers
        try:
            found: Any = json.loads(body)
        except (ValueError, RecursionError):
            found = None
        listed = found.get("errors") if isinstance(found, dict) else None
        structured = isinstance(listed, list)
        errors = [each for each in listed or () if isinstance(each, dict)][:5] if structured else []
        texts = [str(each["message"]) for each in errors if each.get("message")]
        if not structured:
            texts = [body.decode(errors="replace")]
        kind = headers.get("Content-Type", "").partition(";")[0].strip().lower()
        # The response to HEAD has no body.
        by_header = "Docker-Distribution-Api-Version" in headers or kind.endswith("json")
        text = "; ".join(" ".join(each.split()) for each in texts)
        return cls(
            response.status,
            tuple(str(each["code"])[:60] for each in errors if each.get("code")),
            without_credentials(text)[:_LONGEST_TEXT].rstrip("."),
            retry_after(headers),
            genuine=structured or (not body and by_header),
            challenges=parse_challenges(headers.get("WWW-Authenticate", "")),
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


def error_of(refusal: Refusal, call: Call, login: str = "", *, seen: str = "") -> RegistryError:
    """Return the error for *refusal* of a request; *login* is the source of its credentials, or empty.

    *seen* is what the message says instead of the refusal.
    """
    seen, google, hub = seen or str(refusal), is_google(call.host), call.host == DOCKER_HUB
    kind: type[RegistryError] = RegistryError
    text = f"{seen}."
    hint: str | None = None
    match refusal.status:
        case 401:
            kind = RegistryLoginError
            needs = f"does not accept {login}" if login else "requires a login, and there is none"
            text = f"the registry {needs}: {seen}."
            docker_login = f"docker login {'' if hub else call.host}".rstrip()
            hint = (
                "Log in with: gcloud auth application-default login"
                if google
                else f"Log in with: {docker_login}. "
                "Registries also respond like this if there is no such repository."
            )
        case 403:
            kind = RegistryPermissionError
            text = f"{seen}. The right to {call.right} is missing; the request was made with {login or 'no login'}."
            hint = (
                f"Ask for the role {_GOOGLE_ROLES[call.right]} on the repository {call.repository}."
                if google
                else f"Ask the owner of {call.repository} for the right to {call.right}, or log in as another user."
            )
        case 404 if not refusal.absent:
            hint = "The response is not that of a registry. Check the host."
        case 404:
            kind, hint = ImageNotFoundError, "Check the name and the tag."
            if _NO_NAME in refusal.codes:
                create = "gcloud artifacts repositories create"
                hint = f"Check that the repository {call.repository} exists."
                hint += f" Create it with: {create}" if google else ""
        case 429:
            kind = RegistryUnavailableError
            hint = "The registry limits the number of requests. Try again later"
            hint += ", or log in for a higher limit: docker login" if hub else "."
        case status if status in TRANSIENT_STATUSES:
            kind = RegistryUnavailableError
            hint = "Check the network, a VPN or proxy, and the status page of the registry."
    return kind(f"Could not {call}: {text}", hint=hint)
