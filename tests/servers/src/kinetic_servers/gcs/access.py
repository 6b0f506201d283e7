"""Bearer tokens and the permissions of their principals."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field
from typing import Final

from kinetic_servers.gcs.errors import denied, unauthorised
from kinetic_servers.gcs.state import Bucket, State
from kinetic_servers.http.messages import Call

EVERYONE: Final = "allUsers"
"""In a policy: all callers, with or without a token."""

NEEDS: Final = {
    "buckets.insert": ("storage.buckets.create", "project"),
    "buckets.list": ("storage.buckets.list", "project"),
    "buckets.get": ("storage.buckets.get", "bucket"),
    "buckets.delete": ("storage.buckets.delete", "bucket"),
    "buckets.patch": ("storage.buckets.update", "bucket"),
    "buckets.getIamPolicy": ("storage.buckets.getIamPolicy", "bucket"),
    "buckets.setIamPolicy": ("storage.buckets.setIamPolicy", "bucket"),
    "objects.list": ("storage.objects.list", "bucket"),
    "objects.get": ("storage.objects.get", "object"),
    "objects.get.media": ("storage.objects.get", "object"),
    "objects.insert": ("storage.objects.create", "object"),
    "objects.insert.start": ("storage.objects.create", "object"),
    "objects.patch": ("storage.objects.update", "object"),
    "objects.delete": ("storage.objects.delete", "object"),
    "objects.rewrite": ("storage.objects.get", "object"),
}
"""Operation → the permission it needs, and on what. Requests of an upload session need none."""


@dataclass
class Tokens:
    """Access tokens that the server issues and then requires.

    `/token` issues one for a service account's assertion (a JWT, whose signature is not verified). The server
    is also a metadata server (`GCE_METADATA_HOST`) for *machine*.
    """

    machine: str = "pod@test-project.iam.gserviceaccount.com"
    """The principal of tokens from the metadata server."""
    lifetime: float = 3600.0
    """Seconds until a token expires."""
    issued: dict[str, tuple[str, float]] = field(default_factory=dict)
    """Token → its principal, and when the token expires."""

    def issue(self, principal: str) -> str:
        token = "ya29." + secrets.token_urlsafe(24)
        self.issued[token] = (principal, time.time() + self.lifetime)
        return token

    def expire(self) -> None:
        self.issued.clear()

    def principal_of(self, token: str) -> str | None:
        """Return the principal of a valid token, or None."""
        principal, until = self.issued.get(token, ("", 0.0))
        return principal if time.time() < until else None


class Access:
    """Decides whether a call may be made."""

    def __init__(self, state: State, tokens: Tokens | None) -> None:
        self._state = state
        self._tokens = tokens

    def identify(self, call: Call) -> None:
        """Identify the caller.

        Raises:
            RefusedError: 401, the token is not valid.
        """
        if self._tokens is None:
            return
        scheme, _, token = call.headers.get("authorization", "").partition(" ")
        if not scheme:
            return
        call.principal = self._tokens.principal_of(token) if scheme == "Bearer" else None
        if call.principal is None:
            raise unauthorised("authError", "Invalid Credentials")

    def permit(self, call: Call) -> None:
        """Refuse a call without its permission."""
        if call.operation in NEEDS:
            permission, on = NEEDS[call.operation]
            self.demand(call, permission, call.bucket, on)
        if call.operation == "objects.rewrite":
            self.demand(call, "storage.objects.create", call.to_bucket, "object")

    def demand(self, call: Call, permission: str, bucket: str, on: str = "object") -> None:
        """Refuse unless the caller has *permission* on *bucket*."""
        if self._tokens is None:
            return
        found = self._state.buckets.get(bucket)
        if found is None and call.principal is not None:
            return  # The call will fail with 404.
        if not _holds(call.principal, found, permission):
            raise denied(call.principal, permission, on)

    def demand_overwrite(self, call: Call, bucket: str, name: str) -> None:
        """Refuse to replace an object without the permission to delete it."""
        found = self._state.buckets.get(bucket)
        if found is not None and name in found.objects:
            self.demand(call, "storage.objects.delete", bucket)


def _holds(principal: str | None, bucket: Bucket | None, permission: str) -> bool:
    """Return whether *principal* has *permission*."""
    if bucket is None or bucket.policy is None:
        return principal is not None
    allowed = bucket.policy.get(EVERYONE, frozenset())
    if principal is not None:
        allowed = allowed | bucket.policy.get(principal, frozenset())
    return permission in allowed
