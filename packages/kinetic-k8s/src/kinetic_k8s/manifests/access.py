"""What people and jobs may do on a cluster: the namespace of the jobs, their service account, roles and bindings.

`docs/roles.yaml` is the same as a file.
"""

from __future__ import annotations

import hashlib
from typing import Final

from kinetic_k8s.errors import InvalidRequestError
from kinetic_k8s.manifests import Manifest

SERVICE_ACCOUNT: Final = "kinetic"
"""What jobs run as, if it exists."""
USER_ROLE: Final = "kinetic-user"
"""The Role and the ClusterRole of people who submit jobs."""
BINDING: Final = "kinetic-users"
_GROUP: Final = "rbac.authorization.k8s.io"
_SUBJECTS: Final = {"user": "User", "serviceAccount": "User", "group": "Group"}
"""Kind of a member of an IAM policy → kind of a subject. On GKE the address is the name of either."""
_PRINCIPALS: Final = {"principal://": "User", "principalSet://": "Group"}
"""Members of workforce pools, whose name on GKE is all of it.

https://cloud.google.com/kubernetes-engine/docs/how-to/role-based-access-control
"""
_WORKLOAD: Final = ("create", "get", "list", "watch", "patch", "delete")


def _rule(group: str, resources: str, *verbs: str) -> Manifest:
    return {"apiGroups": [group], "resources": resources.split(), "verbs": [*verbs]}


_IN_NAMESPACE: Final = (
    _rule("batch", "jobs", *_WORKLOAD),
    _rule("jobset.x-k8s.io", "jobsets", *_WORKLOAD),
    _rule("leaderworkerset.x-k8s.io", "leaderworkersets", *_WORKLOAD),
    _rule("", "pods", "get", "list", "watch", "delete"),
    _rule("", "pods/log", "get"),
    _rule("", "secrets", "get", "create"),
    _rule("", "configmaps", "get", "create", "patch"),
    _rule("", "services", "create"),
    _rule("", "events", "list"),
    _rule("kueue.x-k8s.io", "workloads localqueues", "get", "list"),
    _rule("", "serviceaccounts", "get"),
    _rule("", "pods/portforward", "get", "create"),
    _rule("", "pods/exec", "get", "create"),
)
"""Why each is needed: see `docs/roles.yaml`."""
_IN_CLUSTER: Final = (
    _rule("cloud.google.com", "computeclasses", "get", "list"),
    _rule("storage.k8s.io", "csidrivers", "get", "list"),
)


def access_manifests(namespace: str) -> list[Manifest]:
    """Return what the jobs of a namespace, and people who submit them, need: all but the bindings."""
    own = {"namespace": namespace}
    rbac = f"{_GROUP}/v1"
    made = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}]
    return [
        *(made if namespace != "default" else ()),
        {
            "apiVersion": rbac,
            "kind": "Role",
            "metadata": {"name": USER_ROLE, **own},
            "rules": [*_IN_NAMESPACE],
        },
        {
            "apiVersion": rbac,
            "kind": "ClusterRole",
            "metadata": {"name": USER_ROLE},
            "rules": [*_IN_CLUSTER],
        },
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": SERVICE_ACCOUNT, **own},
        },
    ]


def user_bindings(namespace: str, member: str) -> list[Manifest]:
    """Return what gives somebody the roles of `access_manifests`.

    Groups are known to a cluster of GKE only if Google Groups for RBAC is set up there.

    Args:
        namespace: That of the jobs.
        member: As an IAM policy names it, such as `user:ada@example.com` or `group:team@example.com`.

    Raises:
        InvalidRequestError: It is neither a user, a service account, a group nor a principal of a workforce pool.
    """
    subject = _subject(member)
    digest = hashlib.sha256(member.encode()).hexdigest()[:10]
    bindings = (
        ("RoleBinding", "Role", {"name": f"{BINDING}-{digest}", "namespace": namespace}),
        # Other namespaces have other members.
        ("ClusterRoleBinding", "ClusterRole", {"name": f"{BINDING}-{namespace}-{digest}"}),
    )
    return [
        {
            "apiVersion": f"{_GROUP}/v1",
            "kind": kind,
            "metadata": metadata,
            "roleRef": {"apiGroup": _GROUP, "kind": role, "name": USER_ROLE},
            "subjects": [subject],
        }
        for kind, role, metadata in bindings
    ]


def _subject(member: str) -> Manifest:
    for start, kind in _PRINCIPALS.items():
        if member.startswith(f"{start}iam.googleapis.com/locations/global/workforcePools/"):
            return {"apiGroup": _GROUP, "kind": kind, "name": member}
    kind, _, name = member.partition(":")
    if kind not in _SUBJECTS or "@" not in name.strip("@"):
        raise InvalidRequestError(
            f"{member!r} cannot be given a role of Kubernetes.",
            hint="Write user:ADDRESS, group:ADDRESS, serviceAccount:ADDRESS or, of a workforce pool, "
            "principal://iam.googleapis.com/locations/global/workforcePools/….",
        )
    return {"apiGroup": _GROUP, "kind": _SUBJECTS[kind], "name": name}
