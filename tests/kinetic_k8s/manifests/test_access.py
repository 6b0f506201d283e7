from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from kinetic_k8s.errors import InvalidRequestError
from kinetic_k8s.manifests.access import access_manifests, user_bindings

ROLES = Path(__file__).parents[3] / "docs" / "roles.yaml"


def test_the_documented_file_has_the_same_roles_and_service_account() -> None:
    text = ROLES.read_text(encoding="utf-8")
    role, cluster_role, account = access_manifests("default")

    for each, documented in zip((role, account), yaml.safe_load_all(text), strict=True):
        assert {**each, "metadata": {"name": each["metadata"]["name"]}} == documented
    resources = [f"{rule['resources'][0]}.{rule['apiGroups'][0]}" for rule in cluster_role["rules"]]
    assert all(rule["verbs"] == ["get", "list"] for rule in cluster_role["rules"])
    command = f"kubectl create clusterrole {cluster_role['metadata']['name']} --verb=get,list"
    assert f"{command} --resource={','.join(resources)}\n" in text


def test_a_namespace_of_its_own_is_made_first() -> None:
    namespace, *others = access_manifests("team")

    assert (namespace["kind"], namespace["metadata"]) == ("Namespace", {"name": "team"})
    assert [each["metadata"].get("namespace") for each in others] == ["team", None, "team"]


@pytest.mark.parametrize(
    ("member", "kind", "name"),
    [
        ("user:ada@example.com", "User", "ada@example.com"),
        ("group:team@example.com", "Group", "team@example.com"),
        ("serviceAccount:ci@p.iam.gserviceaccount.com", "User", "ci@p.iam.gserviceaccount.com"),
        *(
            (f"{start}://iam.googleapis.com/locations/global/workforcePools/p/x", kind, None)
            for start, kind in (("principal", "User"), ("principalSet", "Group"))
        ),
    ],
)
def test_a_member_becomes_the_subject_of_bindings_of_its_own(
    member: str, kind: str, name: str | None
) -> None:
    bindings = user_bindings("team", member)

    assert [each["roleRef"]["kind"] for each in bindings] == ["Role", "ClusterRole"]
    assert [each["metadata"].get("namespace") for each in bindings] == ["team", None]
    for each in bindings:
        (subject,) = each["subjects"]
        assert (subject["kind"], subject["name"]) == (kind, name or member)


@pytest.mark.parametrize(
    "member",
    [
        *("ada@example.com", "domain:example.com", "allUsers", "user:", "principal://iam/x@y"),
        "principal://iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/subject/s",
    ],
)
def test_other_members_are_refused(member: str) -> None:
    with pytest.raises(InvalidRequestError, match="cannot be given a role"):
        user_bindings("team", member)
