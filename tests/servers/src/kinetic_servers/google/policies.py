"""IAM policies: members, roles and etags, as Google checks them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import grpc
from google.iam.v1 import iam_policy_pb2, policy_pb2

from kinetic_servers.google.state import ApiError, State, invalid
from kinetic_servers.policies import is_stale, new_etag, read, replaced

_ROLES: Final = {
    "artifactregistry": "admin createOnPushRepoAdmin createOnPushWriter reader repoAdmin writer",
    "cloudprofiler": "agent user",
    "cloudtrace": "agent user",
    "tpu": "admin viewer",
    "cloudbuild": "builds.builder builds.editor builds.viewer",
    "compute": "admin instanceAdmin.v1 loadBalancerAdmin networkAdmin networkUser networkViewer securityAdmin viewer",
    "container": "admin clusterAdmin clusterViewer defaultNodeServiceAccount developer hostServiceAgentUser "
    "nodeServiceAccount nodeServiceAgent serviceAgent viewer",
    "iam": "securityAdmin serviceAccountAdmin serviceAccountCreator serviceAccountTokenCreator "
    "serviceAccountUser serviceAccountViewer workloadIdentityUser",
    "logging": "admin logWriter viewer viewAccessor",
    "monitoring": "admin editor metricWriter viewer",
    "autoscaling": "metricsWriter",
    "resourcemanager": "projectIamAdmin",
    "secretmanager": "admin secretAccessor viewer",
    "serviceusage": "serviceUsageAdmin serviceUsageConsumer serviceUsageViewer",
    "stackdriver": "resourceMetadata.writer accounts.viewer",
    "storage": "admin bucketViewer folderAdmin insightsCollectorService legacyBucketOwner legacyBucketReader "
    "legacyBucketWriter legacyObjectOwner legacyObjectReader objectAdmin objectCreator objectUser objectViewer",
}
_KNOWN: Final = {f"roles/{api}.{each}" for api, names in _ROLES.items() for each in names.split()}
_BASIC: Final = {"roles/owner", "roles/editor", "roles/viewer"}
_CUSTOM: Final = re.compile(r"(projects|organizations)/[^/]+/roles/[A-Za-z0-9_.]{3,64}")
_PERMISSION: Final = re.compile(r"[a-z]+\.[A-Za-z]+\.[A-Za-z]+")
_MOST_PERMISSIONS: Final = 100
_POOL: Final = re.compile(
    r"//iam\.googleapis\.com/projects/(\d+)/locations/global/workloadIdentityPools/([^/]+)/(.+)"
)
_SUBJECT: Final = re.compile(r"subject/ns/[a-z0-9-]+/sa/[a-z0-9.-]+")
_LEGACY: Final = re.compile(r"(.+)\.svc\.id\.goog\[[a-z0-9-]+/[a-z0-9.-]+\]")
_EMAIL: Final = re.compile(r"[^@\s:]+@[^@\s:]+\.[^@\s:]+")


def check_policy(
    state: State, policy: policy_pb2.Policy, family: str = "", *, public: bool = True
) -> None:
    """Refuse a policy with a role or a member that does not exist.

    *family* is the API whose roles its resource supports; empty: it supports all. *public*: everyone may be a
    member.
    """
    for binding in policy.bindings:
        role = binding.role
        known = role in _BASIC or (role in _KNOWN and role.startswith(f"roles/{family}"))
        if not known and not _CUSTOM.fullmatch(role):
            raise invalid(f"Role {role} is not supported for this resource.")
        if binding.HasField("condition") and policy.version != 3:
            raise invalid("Policies with conditions require version 3.")
        for member in binding.members:
            check_member(state, member, public=public)


def check_member(state: State, member: str, *, public: bool = True) -> None:
    """Refuse a member that does not exist, as far as that is known."""
    kind, _, who = member.partition(":")
    if public and member in ("allUsers", "allAuthenticatedUsers"):
        return
    if kind in ("principal", "principalSet") and (match := _POOL.fullmatch(who)):
        _check_pool(state, match[1], match[2])
        if kind == "principal" and not _SUBJECT.fullmatch(match[3]):
            raise invalid(f"Invalid principal: {member}")
    elif kind == "serviceAccount" and (match := _LEGACY.fullmatch(who)):
        found = state.project(match[1])
        _check_pool(state, str(found.number if found else 0), f"{match[1]}.svc.id.goog")
    elif kind == "deleted":
        if member not in state.buried:
            raise invalid(f"The member {member} is not a deleted one.")
    elif kind in ("user", "group", "serviceAccount") and _EMAIL.fullmatch(who):
        if kind == "serviceAccount" and not state.sees_account(who):
            raise invalid(f"Service account {who} does not exist.")
    elif kind in ("projectOwner", "projectEditor", "projectViewer"):
        if state.project(who) is None:
            raise invalid(f"Project {who} does not exist.")
    elif kind != "domain" or "." not in who:
        raise invalid(
            f"The member {member} is of an unknown type. Please set a valid type prefix for the member."
        )


def _check_pool(state: State, number: str, pool: str) -> None:
    found = state.project(number)
    if found is None or not found.has_pool or pool != f"{found.id}.svc.id.goog":
        raise invalid(
            f"Identity Pool does not exist ({pool}). Please check that you specified a valid resource name as "
            "returned in the `name` attribute in the configuration API."
        )


def bury(state: State, email: str, unique_id: str) -> None:
    """Rename a deleted service account in all policies."""
    member, buried = f"serviceAccount:{email}", f"deleted:serviceAccount:{email}?uid={unique_id}"
    state.buried.add(buried)
    for policy in (*state.policies.values(), *state.bucket_policies()):
        for binding in policy.bindings:
            if member in binding.members:
                others = [each for each in binding.members if each != member]
                binding.members[:] = sorted((*others, buried))
                policy.etag = new_etag()


class PolicyCalls:
    """`GetIamPolicy`, `SetIamPolicy` and `TestIamPermissions` of one API."""

    def __init__(
        self, state: State, key_of: Callable[[str], str], family: str = "", *, public: bool = False
    ) -> None:
        self._state = state
        self._family = family
        self._key_of = key_of
        """Return the full name of a resource, which must exist."""
        self._public = public

    def get(self, request: Any) -> Any:
        return read(self._policy(request), request.options.requested_policy_version)

    def set(self, request: Any) -> Any:
        old, new = self._policy(request), request.policy
        if is_stale(old, new):
            raise ApiError(
                grpc.StatusCode.ABORTED,
                "There were concurrent policy changes. Please retry the whole read-modify-write with "
                "exponential backoff.",
            )
        check_policy(self._state, new, self._family, public=self._public)
        if _owners(old) and not _owners(new):
            raise ApiError(
                grpc.StatusCode.FAILED_PRECONDITION,
                "Policy members must include at least one owner: SOLO_REQUIRE_TOS_ACCEPTOR.",
            )
        made = replaced(old, new)
        if made is None:
            return old
        self._state.policies[self._key_of(request.resource)] = made
        self._state.mark()
        return made

    def test(self, request: Any) -> Any:
        self._policy(request)
        if len(request.permissions) > _MOST_PERMISSIONS:
            raise invalid(f"At most {_MOST_PERMISSIONS} permissions can be tested at once.")
        for each in request.permissions:
            if not _PERMISSION.fullmatch(each):
                raise invalid(f"Permission {each} is not valid for this resource.")
        held = [each for each in request.permissions if each not in self._state.denied]
        return iam_policy_pb2.TestIamPermissionsResponse(permissions=held)

    def _policy(self, request: Any) -> policy_pb2.Policy:
        return self._state.policy(self._key_of(request.resource))


def _owners(policy: policy_pb2.Policy) -> bool:
    return any(each.role == "roles/owner" and each.members for each in policy.bindings)
