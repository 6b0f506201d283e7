"""The user's own fields of a pod: merged, or refused if they would change a field of Kinetic."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kinetic_k8s.manifests.overrides import check_overrides
from kinetic_k8s.manifests.pod import pod_template
from kinetic_payload.errors import InvalidRequestError

from .test_workload import FULL


def with_overrides(overrides: dict[str, Any]) -> dict[str, Any]:
    return pod_template(replace(FULL.pod, overrides=overrides))


def of_container(**fields: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "kinetic", **fields}]}}


def test_fields_of_the_user_are_added_to_those_of_kinetic() -> None:
    plain = pod_template(FULL.pod)

    found = with_overrides(
        {
            "metadata": {"annotations": {"team.example/cost": "7"}},
            "spec": {
                "priorityClassName": "low",
                "hostNetwork": True,
                "nodeSelector": {"disk": "ssd"},
                "tolerations": [{"key": "team", "operator": "Exists"}, plain["spec"]["tolerations"][0]],
                "securityContext": {"runAsUser": 1000},
                "volumes": [{"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}}],
                "initContainers": [{"name": "warm", "image": "busybox", "restartPolicy": "Always"}],
                "imagePullSecrets": [{"name": "registry"}],
                "containers": [
                    {
                        "name": "kinetic",
                        "env": [{"name": "MINE", "value": "$(A)"}],
                        "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
                        "securityContext": {"capabilities": {"add": ["SYS_PTRACE"]}},
                        "resources": {"limits": {"ephemeral-storage": "5Gi"}},
                    },
                    {"name": "other", "image": "busybox"},
                ],
            },
        }
    )  # fmt: skip

    spec, (ours, other) = found["spec"], found["spec"]["containers"]
    before = plain["spec"]["containers"][0]
    assert found["metadata"]["labels"] == plain["metadata"]["labels"]
    assert found["metadata"]["annotations"]["team.example/cost"] == "7"
    assert (spec["priorityClassName"], spec["hostNetwork"]) == ("low", True)
    assert spec["nodeSelector"] == {**plain["spec"]["nodeSelector"], "disk": "ssd"}
    assert spec["tolerations"] == [
        *plain["spec"]["tolerations"],
        {"key": "team", "operator": "Exists"},
    ]
    assert spec["securityContext"] == {
        "seccompProfile": {"type": "RuntimeDefault"},
        "runAsUser": 1000,
    }
    assert spec["volumes"][-1]["name"] == "scratch"
    assert spec["volumes"][:-1] == plain["spec"]["volumes"]
    assert ours["env"] == [*before["env"], {"name": "MINE", "value": "$(A)"}]
    assert ours["volumeMounts"][:-1] == before["volumeMounts"]
    assert ours["command"] == before["command"]
    assert ours["resources"]["limits"] == {
        **before["resources"]["limits"],
        "ephemeral-storage": "5Gi",
    }
    # A list without a key is replaced as a whole.
    assert ours["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["SYS_PTRACE"]}
    assert other == {"name": "other", "image": "busybox"}


def test_a_field_is_removed_by_null() -> None:
    found = with_overrides(of_container(securityContext={"capabilities": None}))

    context = found["spec"]["containers"][0]["securityContext"]
    assert context == {"allowPrivilegeEscalation": False}


@pytest.mark.parametrize(
    ("overrides", "path"),
    [
        ({"kind": "Job"}, "kind is not a field"),
        ({"metadata": {"name": "x"}}, "metadata.name cannot"),
        ({"metadata": {"labels": {"app": "x"}}}, r"metadata.labels\[app\] belongs"),
        ({"metadata": {"annotations": {"kinetic.dev/job-id": "x"}}}, "metadata.annotations"),
        ({"spec": {"nodeSelector": {"cloud.google.com/gke-accelerator": "x"}}}, "nodeSelector"),
        ({"spec": {"nodeSelector": {"cloud.google.com/gke-spot": None}}}, "nodeSelector"),
        ({"spec": {"volumes": [{"name": "workspace"}]}}, r"spec.volumes\[workspace\]"),
        (of_container(env=[{"name": "KINETIC_X", "value": ""}]), r"env\[KINETIC_X\] belongs"),
        (of_container(env=[{"name": "KERAS_BACKEND"}]), r"env\[KERAS_BACKEND\] belongs"),
        (of_container(volumeMounts=[{"mountPath": "/dev/shm"}]), r"volumeMounts\[/dev/shm\]"),
        (of_container(resources={"limits": {"nvidia.com/gpu": 8}}), "limits.nvidia.com/gpu"),
        ({"spec": {"containers": [{"image": "x"}]}}, r"spec.containers\[0\] is not an object with"),
        ({"spec": {"containers": {"kinetic": {}}}}, "spec.containers is not a list"),
        ({"spec": []}, "spec is not an object"),
        ({"metadata": {"annotations": {"gke-gcsfuse/volumes": "false"}}}, "gke-gcsfuse/volumes"),
        ({"spec": {"nodeSelector": {"cloud.google.com/gke-tpu-topology": "4x4"}}}, "nodeSelector"),
        ({"spec": {"initContainers": [{"name": "kinetic"}]}}, r"spec.initContainers\[kinetic\]"),
        ({"spec": {"affinity": {"a": object()}}}, "is not JSON"),
        (of_container(env=[{"name": 5}]), r"env\[0\] is not an object with 'name'"),
        (of_container(resources="x"), r"spec.containers\[kinetic\].resources is not an object"),
        (of_container(env=[{"name": "A"}] * 2), r"env\[A\] has the same 'name'"),
    ],
)  # fmt: skip
def test_a_field_of_kinetic_is_refused_with_its_path(overrides: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidRequestError, match=path):
        with_overrides(overrides)


def test_every_field_of_kinetic_is_refused_even_if_it_is_only_removed() -> None:
    of_pod = "restartPolicy terminationGracePeriodSeconds activeDeadlineSeconds nodeName serviceAccount subdomain hostname"
    ours = "image command args terminationMessagePath terminationMessagePolicy restartPolicy restartPolicyRules"
    whole = "containers initContainers volumes tolerations nodeSelector affinity"
    refused = [{"spec": {name: None}} for name in f"{of_pod} {whole}".split()]
    refused += [
        of_container(**{name: None})
        for name in f"{ours} env envFrom volumeMounts resources".split()
    ]
    refused += [{"metadata": {name: None}} for name in ("labels", "annotations")]
    refused += [
        {"spec": {"affinity": {"podAffinity": None}}},
        of_container(resources={"limits": None}),
    ]
    for overrides in refused:
        with pytest.raises(InvalidRequestError, match=r"belongs to Kinetic|cannot be removed"):
            check_overrides(overrides)


@pytest.mark.parametrize(
    ("path", "hidden"),
    [
        ("/dev/shm/", "/dev/shm"),
        ("//dev/shm", "/dev/shm"),
        ("/dev/./x/../shm", "/dev/shm"),
        ("dev/shm", "/dev/shm"),
        ("/app/remote_runner.py/", "/app/remote_runner.py"),
        ("/app", "/app/remote_runner.py"),
        ("/kinetic", "/kinetic/workspace"),
        ("/", "/kinetic/workspace"),
    ],
)
def test_a_mount_over_one_of_kinetic_is_refused(path: str, hidden: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"would hide {hidden}, which belongs"):
        with_overrides(of_container(volumeMounts=[{"name": "workspace", "mountPath": path}]))


def test_a_mount_beside_those_of_kinetic_is_added() -> None:
    mount = {"name": "scratch", "mountPath": "/app/remote_runner.py.d"}

    found = with_overrides(of_container(volumeMounts=[mount]))

    assert found["spec"]["containers"][0]["volumeMounts"][-1] == mount


def test_keys_of_labels_may_be_named_like_lists_and_objects_of_a_pod() -> None:
    labels = {"env": "prod", "ports": "a", "spec": "b"}
    term = {"labelSelector": {"matchLabels": {"volumes": "x", "env": "prod"}}}
    spread = [{**term, "maxSkew": 1}]

    found = with_overrides(
        {
            "metadata": {"labels": labels, "annotations": {"resources": None}},
            "spec": {"nodeSelector": {"env": "prod"}, "topologySpreadConstraints": spread},
        }
    )

    assert labels.items() <= found["metadata"]["labels"].items()
    assert found["spec"]["nodeSelector"]["env"] == "prod"
    assert found["spec"]["topologySpreadConstraints"] == spread


def test_a_selector_that_this_job_does_not_set_may_be_added_and_an_equal_one_repeated() -> None:
    selector = {"kubernetes.io/arch": "amd64", "cloud.google.com/gke-spot": "true"}

    found = with_overrides({"spec": {"nodeSelector": selector}})

    assert selector.items() <= found["spec"]["nodeSelector"].items()
