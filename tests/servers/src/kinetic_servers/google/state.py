"""What all Google APIs share: projects, policies, operations, and the controls of tests."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import grpc
from google.iam.v1 import policy_pb2

CALLER: Final = "tester@test-project.iam.gserviceaccount.com"
KNOWN: Final = {
    "artifactregistry", "cloudbilling", "cloudbuild", "cloudquotas", "cloudresourcemanager", "compute", "container",
    "iam", "serviceusage", "storage", "tpu",
}  # fmt: skip
"""The known APIs, without `.googleapis.com`."""
ALWAYS: Final = {"serviceusage", "storage"}
"""APIs that work in every project. Real projects have some more."""


class ApiError(Exception):
    """An API refuses a call."""

    def __init__(
        self,
        code: grpc.StatusCode,
        message: str,
        *,
        reason: str = "",
        domain: str = "googleapis.com",
        metadata: Mapping[str, str] = {},
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.reason = reason
        """Of an `ErrorInfo`, as are `domain` and `metadata`; empty: there is none."""
        self.domain = domain
        self.metadata = metadata


def invalid(message: str) -> ApiError:
    """Return the error for an invalid request."""
    return ApiError(grpc.StatusCode.INVALID_ARGUMENT, message)


def not_found(message: str) -> ApiError:
    """Return the error for a thing that does not exist."""
    return ApiError(grpc.StatusCode.NOT_FOUND, message)


def taken(message: str) -> ApiError:
    """Return the error for a name that is taken."""
    return ApiError(grpc.StatusCode.ALREADY_EXISTS, message)


def permission_denied(permission: str, resource: str) -> ApiError:
    """Return the error for a missing permission."""
    return ApiError(
        grpc.StatusCode.PERMISSION_DENIED,
        f"Permission '{permission}' denied on resource '{resource}' (or it may not exist).",
        reason="IAM_PERMISSION_DENIED",
        domain="iam.googleapis.com",
        metadata={"permission": permission, "resource": resource},
    )


@dataclass
class Project:
    """A project. Its policy and its resources are in `State`."""

    id: str
    number: int
    billing: bool = True
    deleted: bool = False
    apis: dict[str, int] = field(default_factory=dict)
    """Enabled API → how many more calls find it disabled."""
    has_pool: bool = False
    """Whether a cluster has created the project's pool of workload identities."""


@dataclass
class Operation:
    """A long-running operation. Polls, not time, bring it to its end."""

    name: str
    method: str
    target: str
    """The full name of what it changes; see `State.existing`."""
    polls: int
    """How many more it needs."""
    finish: Callable[[], Any]
    """Apply the end of a success, and return the response."""
    give_up: Callable[[str], Any]
    """Apply the end of a failure."""
    error: str = ""
    code: grpc.StatusCode = grpc.StatusCode.INTERNAL
    done: bool = False
    response: Any = None
    details: dict[str, Any] = field(default_factory=dict)
    """What the API shows of it."""

    def poll(self) -> None:
        """Come one poll closer to the end."""
        self.polls -= 1
        if self.done or self.polls > 0:
            return
        self.done = True
        if self.error:
            self.give_up(self.error)
        else:
            self.response = self.finish()


class State:
    """Everything that the APIs know, and what tests told them. The APIs use it under `lock`."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.projects: dict[str, Project] = {}
        self.existing: dict[str, Any] = {}
        """What exists, by full name: `PROJECT/iam/serviceAccounts/EMAIL`, `PROJECT/compute/networks/NAME`, …"""
        self.policies: dict[str, policy_pb2.Policy] = {}
        """The policies of projects (`PROJECT`) and of resources, by full name."""
        self.buried: set[str] = set()
        """`deleted:serviceAccount:EMAIL?uid=ID` of all deleted service accounts."""
        self.operations: dict[str, Operation] = {}
        self.skus: list[Any] = []
        """The catalogue of Compute Engine; see `billing.sku`."""
        self.requests: list[str] = []
        """All calls, in order: `GetCluster projects/p/…`, `POST projects/p/global/networks`, `buckets.get NAME`."""
        self.changes: list[str] = []
        """The calls that changed something, in order."""
        self.denied: set[str] = set()
        """Permissions that the caller does not have."""
        self.lag = 0
        """How many calls do not see a new service account, or find a new API disabled."""
        self.polls = 1
        """How many polls an operation needs; 0: it has ended when it is answered."""
        self.delay = 0.0
        """Seconds before each answer of a gRPC service."""
        self.hook: Callable[[str], object] | None = None
        """Called with each change that was applied, before it is answered; it may wait."""
        self.quotas: dict[str, int] = {}
        """Limits of Compute Engine in every region, by the id of the quota; others do not exist."""
        self.failing: list[tuple[str, str]] = []
        """Method and message of operations that will fail."""
        self.bucket_policies: Callable[[], list[policy_pb2.Policy]] = list
        self._left: int | None = None
        self._calls = threading.local()

    # --- Controls of tests

    def deny(self, *permissions: str) -> None:
        """Take these permissions from the caller."""
        self.denied.update(permissions)

    def allow_all(self) -> None:
        """Give the caller all permissions again."""
        self.denied.clear()

    def dies_after(self, changes: int) -> None:
        """Refuse the response to the last of so many further changes, and all calls after it."""
        with self.lock:
            self._left = changes

    def revive(self) -> None:
        """Accept calls again. Meanwhile all operations have ended but those of clusters."""
        with self.lock:
            self._left = None
            for each in self.operations.values():
                while not each.done and "/container/" not in each.target:
                    each.poll()

    # --- One call

    def check_alive(self) -> None:
        """Refuse the call if the client counts as killed."""
        if self._left is not None and self._left <= 0:
            raise ApiError(
                grpc.StatusCode.UNAUTHENTICATED,
                "Request had invalid authentication credentials.",
                reason="ACCESS_TOKEN_EXPIRED",
            )

    def mark(self) -> None:
        """Note that the call in progress changes something."""
        self._calls.changed = True

    def take_change(self, description: str) -> bool:
        """Count the change of the call in progress, if there is one; return whether there is."""
        changed: bool = getattr(self._calls, "changed", False)
        self._calls.changed = False
        if changed:
            self.changes.append(description)
            if self._left is not None:
                self._left -= 1
        return changed

    # --- Projects and permissions

    def project(self, name: str) -> Project | None:
        """Return the project with this id or number."""
        name = name.removeprefix("projects/")
        found = (each for each in self.projects.values() if name in (each.id, str(each.number)))
        return next(found, None)

    def sees_account(self, email: str) -> bool:
        """Return whether this call sees a service account; those of unknown projects exist."""
        project = email.partition("@")[2].removesuffix(".iam.gserviceaccount.com")
        if project not in self.projects:
            return True
        found = self.existing.get(f"{project}/iam/serviceAccounts/{email}")
        return found is not None and not found.unseen()

    def policy(self, key: str) -> policy_pb2.Policy:
        """Return the policy of a project or resource."""
        # The etag of a policy that was never set, as at Google.
        return self.policies.setdefault(key, policy_pb2.Policy(etag=b"\x00\x20\x01"))

    def admit(self, api: str, permission: str, project: str, resource: str) -> Project:
        """Return the project, if *api* is enabled there and the caller has *permission*."""
        found = self.project(project)
        if found is None:
            raise permission_denied(permission or "resourcemanager.projects.get", resource)
        if api != "cloudresourcemanager" and found.deleted:
            raise ApiError(
                grpc.StatusCode.PERMISSION_DENIED,
                f"Project #{found.number} has been deleted.",
                reason="CONSUMER_INVALID",
                metadata={"consumer": f"projects/{found.number}"},
            )
        lag = found.apis.get(api, 0 if api in ALWAYS else -1)
        if lag > 0:
            found.apis[api] = lag - 1
        if lag != 0:
            host = f"{api}.googleapis.com"
            raise ApiError(
                grpc.StatusCode.PERMISSION_DENIED,
                f"{host} has not been used in project {found.number} before or it is disabled.",
                reason="SERVICE_DISABLED",
                metadata={"service": host, "consumer": f"projects/{found.number}"},
            )
        if permission in self.denied:
            raise permission_denied(permission, resource)
        return found

    # --- Operations

    def start(
        self,
        method: str,
        name: str,
        target: str,
        finish: Callable[[], Any],
        give_up: Callable[[str], Any] = lambda _: None,
        **details: Any,
    ) -> Operation:
        """Start an operation, which may end at once."""
        made = Operation(name, method, target, self.polls, finish, give_up, details=details)
        for entry in self.failing:
            if entry[0] == method:
                made.error = entry[1]
                self.failing.remove(entry)
                break
        self.operations[name] = made
        if made.polls <= 0:
            made.poll()
        return made

    def running(self, target: str) -> Operation | None:
        """Return the operation that changes *target* now."""
        found = (each for each in self.operations.values() if each.target == target)
        return next((each for each in found if not each.done), None)

    def look(self, target: str) -> None:
        """Count a look at *target*, after its answer, as a poll of its operation."""
        if (found := self.running(target)) is not None:
            found.poll()


def new_name(kind: str = "operation") -> str:
    """Return a new name of an operation."""
    return f"{kind}-{secrets.token_hex(8)}"
