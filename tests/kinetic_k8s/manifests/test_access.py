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


def test_members_become_subjects_of_a_binding_in_the_namespace_and_one_in_the_cluster() -> None:
    robot = "ci@project.iam.gserviceaccount.com"
    members = ["user:ada@example.com", "group:team@example.com", f"serviceAccount:{robot}"]

    in_namespace, in_cluster = user_bindings("team", [*members, members[0]])

    assert in_namespace["metadata"] == {"name": "kinetic-users", "namespace": "team"}
    assert in_cluster["metadata"] == {"name": "kinetic-users-team"}
    assert [each["roleRef"]["kind"] for each in (in_namespace, in_cluster)] == [
        "Role",
        "ClusterRole",
    ]
    assert in_namespace["subjects"] == in_cluster["subjects"]
    assert [(each["kind"], each["name"]) for each in in_namespace["subjects"]] == [
        ("User", "ada@example.com"),
        ("Group", "team@example.com"),
        ("User", robot),
    ]


@pytest.mark.parametrize(
    "member", ["ada@example.com", "domain:example.com", "allUsers", "user:", "principal://iam/x@y"]
)
def test_other_members_are_refused(member: str) -> None:
    with pytest.raises(InvalidRequestError, match="cannot be given a role"):
        user_bindings("team", [member])
