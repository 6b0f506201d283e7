"""IAM policies: members, roles and etags, as Google checks them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import grpc
from google.iam.v1 import iam_policy_pb2, policy_pb2

from kinetic_servers.google.apis import Rpcs, rpcs
from kinetic_servers.google.state import ApiError, State, invalid
from kinetic_servers.policies import is_stale, new_etag, read, replaced

_ROLES: Final = {
    "artifactregistry": "admin reader repoAdmin writer",
    "cloudbuild": "builds.builder builds.editor builds.viewer",
    "container": "admin clusterViewer defaultNodeServiceAccount developer viewer",
    "iam": "serviceAccountTokenCreator serviceAccountUser serviceAccountViewer workloadIdentityUser",
    "logging": "admin logWriter viewer",
    "monitoring": "admin metricWriter viewer",
    "secretmanager": "admin secretAccessor viewer",
    "serviceusage": "serviceUsageAdmin serviceUsageConsumer serviceUsageViewer",
    "storage": "admin bucketViewer legacyBucketOwner legacyBucketReader legacyBucketWriter legacyObjectOwner "
    "legacyObjectReader objectAdmin objectCreator objectUser objectViewer",
}
"""The roles that Kinetic could give. Google has more."""
_KNOWN: Final = {f"roles/{api}.{each}" for api, names in _ROLES.items() for each in names.split()}
_BASIC: Final = {"roles/owner", "roles/editor", "roles/viewer"}
_PERMISSION: Final = re.compile(r"[a-z]+\.[A-Za-z]+\.[A-Za-z]+")
_MOST_PERMISSIONS: Final = 100
_PRINCIPAL: Final = re.compile(
    r"//iam\.googleapis\.com/projects/(\d+)/locations/global/workloadIdentityPools/([^/]+)"
    r"/subject/ns/[a-z0-9-]+/sa/[a-z0-9.-]+"
)
_EMAIL: Final = re.compile(r"[^@\s:]+@[^@\s:]+\.[^@\s:]+")


def check_policy(state: State, policy: policy_pb2.Policy, family: str = "") -> None:
    """Refuse a policy with a role or a member that does not exist.

    *family* is the API whose roles its resource supports; empty: it supports all.
    """
    for binding in policy.bindings:
        role = binding.role
        if role not in _BASIC and not (role in _KNOWN and role.startswith(f"roles/{family}")):
            raise invalid(f"Role {role} is not supported for this resource.")
        if binding.HasField("condition") and policy.version != 3:
            raise invalid("Policies with conditions require version 3.")
        for member in binding.members:
            _check_member(state, member)


def _check_member(state: State, member: str) -> None:
    """Refuse a member that does not exist, as far as that is known."""
    kind, _, who = member.partition(":")
    if kind == "principal" and (match := _PRINCIPAL.fullmatch(who)):
        found = state.project(match[1])
        if found is None or not found.has_pool or match[2] != f"{found.id}.svc.id.goog":
            raise invalid(
                f"Identity Pool does not exist ({match[2]}). Please check that you specified a valid resource name as "
                "returned in the `name` attribute in the configuration API."
            )
    elif kind == "deleted":
        if member not in state.buried:
            raise invalid(f"The member {member} is not a deleted one.")
    elif kind in ("user", "group", "serviceAccount") and _EMAIL.fullmatch(who):
        if kind == "serviceAccount" and not state.sees_account(who):
            raise invalid(f"Service account {who} does not exist.")
    elif kind not in ("projectOwner", "projectEditor", "projectViewer"):
        raise invalid(
            f"The member {member} is of an unknown type. Please set a valid type prefix for the member."
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

    def __init__(self, state: State, key_of: Callable[[str], str], family: str = "") -> None:
        self._state = state
        self._family = family
        self._key_of = key_of
        """Return the full name of a resource, which must exist."""

    def rpcs(self, permissions: str) -> Rpcs:
        """Return the methods that read and write policies, whose permissions begin with *permissions*."""
        asked, policy = iam_policy_pb2, policy_pb2.Policy
        return rpcs(
            (f"{permissions}.getIamPolicy", asked.GetIamPolicyRequest, policy, self._get),
            (f"{permissions}.setIamPolicy", asked.SetIamPolicyRequest, policy, self._set),
        )

    def _get(self, request: Any) -> Any:
        return read(self._policy(request), request.options.requested_policy_version)

    def _set(self, request: Any) -> Any:
        old, new = self._policy(request), request.policy
        if is_stale(old, new):
            raise ApiError(
                grpc.StatusCode.ABORTED,
                "There were concurrent policy changes. Please retry the whole read-modify-write with "
                "exponential backoff.",
            )
        check_policy(self._state, new, self._family)
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
        """Return which of some permissions the caller has."""
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
