"""The pod template: what each field of its spec becomes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kinetic_k8s.accelerators import catalogue, parse_accelerator
from kinetic_k8s.manifests.labels import (
    of_jobs,
    standard_labels,
)
from kinetic_k8s.manifests.placement import placement_of
from kinetic_k8s.manifests.pod import NodeFolder, PodSpec, Resources, pod_template
from kinetic_payload.errors import InvalidRequestError

POD = PodSpec(
    job_id="cpu-f-20261122-101500-0a1b2c3",
    accelerator=parse_accelerator("cpu"),
    image="python:3.11",
    command=("python3",),
)
TPU = "cloud.google.com/gke-tpu-"
GPU = "cloud.google.com/gke-accelerator"


def resources(pod: PodSpec) -> dict[str, Any]:
    return pod_template(pod)["spec"]["containers"][0]["resources"]


@pytest.mark.parametrize(
    ("accelerator", "selector", "takes"),
    [
        ("cpu", {}, {}),
        ("l4", {GPU: "nvidia-l4", f"{GPU}-count": "1"}, {"nvidia.com/gpu": "1"}),
        ("l4x4", {GPU: "nvidia-l4", f"{GPU}-count": "4"}, {"nvidia.com/gpu": "4"}),
        ("gb200x4", {GPU: "nvidia-gb200", f"{GPU}-count": "4", "kubernetes.io/arch": "arm64"},
         {"nvidia.com/gpu": "4"}),
        ("v5litepod-4", {f"{TPU}accelerator": "tpu-v5-lite-podslice", f"{TPU}topology": "2x2"},
         {"google.com/tpu": "4"}),
        ("v6e-8", {f"{TPU}accelerator": "tpu-v6e-slice", f"{TPU}topology": "2x4"}, {"google.com/tpu": "8"}),
        ("v6e-1:spot", {f"{TPU}accelerator": "tpu-v6e-slice", f"{TPU}topology": "1x1",
         "cloud.google.com/gke-spot": "true"}, {"google.com/tpu": "1"}),
    ],
)  # fmt: skip
def test_a_placement_names_exactly_one_machine(
    accelerator: str, selector: dict[str, str], takes: dict[str, str]
) -> None:
    placement = placement_of(parse_accelerator(accelerator))

    assert (placement.selector, placement.resources) == (selector, takes)


def test_every_taint_of_the_machine_is_tolerated() -> None:
    for accelerator in catalogue():
        placement = placement_of(replace(accelerator, spot=True))
        tolerated = {each["key"]: each for each in placement.tolerations}

        assert set(placement.resources) <= set(tolerated)
        assert tolerated["cloud.google.com/gke-spot"]["value"] == "true"
        assert all(each["effect"] == "NoSchedule" for each in placement.tolerations)
        # `Equal` without a value tolerates only a taint without a value.
        assert all(
            (each["operator"] == "Equal") == ("value" in each) for each in tolerated.values()
        )


def test_dollars_in_a_command_or_a_value_are_not_expanded() -> None:
    pod = replace(POD, command=("echo", "$(HOME)", "$$"), environment={"PRICE": "5$(X)"})

    container = pod_template(pod)["spec"]["containers"][0]

    assert container["command"] == ["echo", "$$(HOME)", "$$$$"]
    assert container["env"] == [{"name": "PRICE", "value": "5$$(X)"}]


def test_a_cpu_job_has_a_memory_limit_because_it_shares_its_node() -> None:
    assert resources(POD) == {
        "requests": {"cpu": "1", "memory": "2Gi"},
        "limits": {"memory": "2Gi"},
    }
    named = resources(replace(POD, accelerator=parse_accelerator("cpu:8")))
    assert named["requests"] == named["limits"] == {"cpu": "8", "memory": "2Gi"}
    shared = resources(replace(POD, resources=Resources(shared_memory="3Gi")))
    assert "memory" not in shared["limits"], "shared memory counts as memory"
    asked = resources(replace(POD, resources=Resources(cpu="500m", memory="2Gi")))
    assert asked["requests"] == asked["limits"] == {"cpu": "500m", "memory": "2Gi"}


def test_a_folder_of_the_node_is_mounted_and_made_if_it_is_missing() -> None:
    folder = NodeFolder(name="cache", source="/var/cache/kinetic", path="/kinetic/packages")

    spec = pod_template(replace(POD, node_folders=(folder,)))["spec"]

    host_path = {"path": "/var/cache/kinetic", "type": "DirectoryOrCreate"}
    assert {"name": "cache", "hostPath": host_path} in spec["volumes"]
    mounts = spec["containers"][0]["volumeMounts"]
    assert {"name": "cache", "mountPath": "/kinetic/packages"} in mounts


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ({"cpu": "four"}, "cpu='four' is not an amount"),
        ({"memory": "16GB"}, "memory='16GB' is not an amount"),
        ({"memory": "0"}, "memory='0' is not an amount"),
        ({"memory": "1Gi", "shared_memory": "2Gi"}, "Shared memory counts as memory"),
    ],
)
def test_impossible_amounts_are_refused(wrong: dict[str, str], expected: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        Resources(**wrong)

    assert expected in str(caught.value)


def test_labels_of_a_job_find_it_again() -> None:
    assert standard_labels("job-1", "cpu")["app"] == "kinetic"
    assert of_jobs(()) == "app in (kinetic,kinetic-pathways)"
    assert of_jobs(("job-1",)) == "kinetic.dev/job-id=job-1"
    assert of_jobs(("a", "b")) == "kinetic.dev/job-id in (a,b)"
