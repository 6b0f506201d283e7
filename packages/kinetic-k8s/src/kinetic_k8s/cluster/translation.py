"""Translation of an API server's failures to Kinetic's errors."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Final

from kinetic_k8s.errors import (
    AlreadyExistsError,
    ClusterError,
    ClusterUnreachableError,
    ConflictError,
    InvalidManifestError,
    KindNotServedError,
    LogNotReadyError,
    NamespaceNotFoundError,
    NotAuthenticatedError,
    NotPermittedError,
    ObjectGoneError,
    RefusedError,
)

GKE_TITLE: Final = "the GKE cluster "
"""How the titles of clusters begin that were found by the GKE API."""
_LONGEST_TEXT: Final = 500
_NOT_IN_SCHEMA: Final = "field not declared in schema"
_ANONYMOUS: Final = 'User "system:anonymous"'
_RBAC: Final = re.compile(r'User "(?P<user>[^"]*)" cannot (?P<verb>\w+) resource')
_NO_LOG: Final = re.compile(r"^container .* is (?:waiting to start|terminated$)")
"""The response to a request for the log of a container that has not started, or that ended without that."""
_APPLY_FAILED: Final = "Apply failed with "
"""How the message about conflicts with other field managers begins."""
_TRANSIENT: Final = frozenset({408, 425, 429, 500, 502, 503, 504})


@dataclass(frozen=True, kw_only=True)
class Identity:
    """The identity of a cluster and namespace, for messages and records."""

    server: str
    namespace: str
    context: str | None = None
    """The context of the kubeconfig, if the cluster was found by one."""
    title: str = ""
    """The name of the cluster for messages, if it was found in another way."""

    def __str__(self) -> str:
        server = f"{self.title} ({self.server})" if self.title else self.server
        where = f"namespace {self.namespace!r} of {server}"
        return where if self.context is None else f"{where} (context {self.context!r})"


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request, described for messages and in terms of a role."""

    verb: str
    """As a role names it."""
    resource: str
    """As a role names it: `jobs.batch`, `pods/log`."""
    kind: str
    path: str = ""
    """On the server, quoted."""
    name: str = ""
    namespace: str = ""
    """Empty: all namespaces, or none."""
    everywhere: bool = False
    """Whether it lists the objects of all namespaces, which a role of one namespace does not permit."""

    @property
    def right(self) -> tuple[str, str, str]:
        """The permission that the request needs."""
        return self.verb, self.resource, self.namespace

    def __str__(self) -> str:
        what = f"{self.kind} {self.name}" if self.name else f"{self.kind} objects"
        return f"{self.verb} {what}"


@dataclass(frozen=True)
class Refusal:
    """A response with a status of 400 or above."""

    status: int
    text: str
    """The server's own message."""
    reason: str = ""
    kind: str = ""
    """The resource that the message is about, in lower case: `namespaces`."""
    structured: bool = False
    """Whether the response is a `Status` of Kubernetes, not the page of a proxy."""

    @classmethod
    def of(cls, status: int, body: bytes) -> Refusal:
        """Read a response."""
        try:
            found: Any = json.loads(body)
        except ValueError:
            found = None
        if not isinstance(found, dict) or found.get("kind") != "Status":
            text = " ".join(body.decode(errors="replace").split())
            return cls(status, text[:_LONGEST_TEXT])
        details = found.get("details")
        kind = details.get("kind") if isinstance(details, dict) else None
        return cls(
            status,
            str(found.get("message") or ""),
            reason=str(found.get("reason") or ""),
            kind=str(kind or ""),
            structured=True,
        )

    @property
    def transient(self) -> bool:
        """Whether the same request may succeed a little later."""
        return self.status in _TRANSIENT and _NOT_IN_SCHEMA not in self.text

    @property
    def rejection(self) -> bool:
        """Whether a server that has just started gives this response to a request that it will accept.

        Its roles and its custom resources are not loaded yet.
        """
        if self.status == 403:
            return not self.structured or _RBAC.search(self.text) is not None
        return self.status == 404 and not self.absent

    @property
    def absent(self) -> bool:
        """Whether the API server, not a proxy, reports that the object does not exist."""
        return self.status == 404 and self.structured and self.reason == "NotFound"


def error_of(
    refusal: Refusal, request: Request, where: Identity, *, retry_after: float = 0.0
) -> ClusterError:
    """Return the error for *refusal*; *retry_after*: seconds after which the server asks for a new try."""
    text = f"Could not {request} in {where}: {refusal.text or 'no message'} ({refusal.status})."
    match refusal.status:
        case 401:
            return NotAuthenticatedError(text, hint=_log_in(where))
        case 403:
            return _forbidden(refusal, request, where, text)
        case 404 if refusal.absent and refusal.kind == "namespaces":
            return NamespaceNotFoundError(
                f"There is no namespace {request.namespace!r} in the cluster {where.server}.",
                hint=f"Create it: kubectl create namespace {request.namespace}. Or name another.",
            )
        case 404 if refusal.absent:
            return ObjectGoneError(text)
        case 404:
            hint = "Check the address of the cluster, or install the add-on that serves it."
            if add_on := _ADD_ONS.get(request.resource.partition(".")[2]):
                name, documentation = add_on
                hint = (
                    f"The add-on {name} is not installed there. How to install it: {documentation}"
                )
            return KindNotServedError(
                f"The cluster {where.server} does not serve {request.resource}: "
                f"{refusal.text or 'no message'} (404).",
                hint=hint,
            )
        case 409 if refusal.reason == "AlreadyExists":
            return AlreadyExistsError(text)
        case 409 if refusal.text.startswith(_APPLY_FAILED):
            return ConflictError(
                text, hint="Another program or person set these fields. Undo that, then repeat."
            )
        case 409:
            return ConflictError(
                text,
                hint="Another program changed or replaced it meanwhile. Look again, then repeat.",
            )
        case 400 if _NO_LOG.search(refusal.text):
            return LogNotReadyError(text)
        case 400 | 422:
            return InvalidManifestError(text, hint=_MANIFEST_HINT)
        case 500 if _NOT_IN_SCHEMA in refusal.text:
            return InvalidManifestError(text, hint=_MANIFEST_HINT)
        case status if status in _TRANSIENT:
            error = ClusterUnreachableError(
                text, hint="The API server is overloaded or restarting. Try again later."
            )
            error.retry_after = retry_after
            return error
    return ClusterError(text)


_MANIFEST_HINT: Final = "The message names the field. Correct the argument or setting that sets it."


def _log_in(where: Identity) -> str:
    if where.title.startswith(GKE_TITLE):
        return "Log in again: gcloud auth application-default login"
    if where.context is None:
        return "The credentials have expired or belong to another cluster. Log in again."
    return (
        f"Log in again in the way that the context {where.context!r} of your kubeconfig asks for; "
        f"`kubectl --context {where.context} get pods` then succeeds as well."
    )


def _forbidden(refusal: Refusal, request: Request, where: Identity, text: str) -> ClusterError:
    if _ANONYMOUS in refusal.text:
        return NotAuthenticatedError(
            f"Could not {request} in {where}: no credentials were sent.", hint=_log_in(where)
        )
    user = _RBAC.search(refusal.text)
    if refusal.structured and user is None:
        return RefusedError(
            text,
            hint="A quota or a policy of the cluster refused it. Ask the cluster's administrator.",
        )
    scope = f" in the namespace {request.namespace!r}" if request.namespace else ""
    who = f"The user {user['user']!r} needs" if user else "You need"
    # To apply an object that does not exist, one must also be permitted to create it.
    verb = user["verb"] if user else request.verb
    resource, _, group = request.resource.partition(".")
    rule = f'{{apiGroups: ["{group}"], resources: ["{resource}"], verbs: ["{verb}"]}}'
    error = NotPermittedError(
        text,
        hint=f"{who} a role that permits {verb!r} on {request.resource!r}{scope}: a Role of "
        f"Kubernetes with the rule {rule}, or on GKE the IAM role roles/container.developer. "
        "Ask the cluster's administrator.",
    )
    error.verb, error.resource = verb, request.resource
    error.namespace = request.namespace
    return error


_ADD_ONS: Final = {
    "jobset.x-k8s.io": ("JobSet", "https://jobset.sigs.k8s.io/docs/installation/"),
    "leaderworkerset.x-k8s.io": ("LeaderWorkerSet", "https://lws.sigs.k8s.io/docs/installation/"),
    "kueue.x-k8s.io": ("Kueue", "https://kueue.sigs.k8s.io/docs/installation/"),
}
"""API group → the add-on that serves it."""
