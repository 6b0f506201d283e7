from __future__ import annotations

from typing import Any

import pytest

from kinetic_k8s.cluster.addons import addon_of
from kinetic_k8s.manifests import Manifest
from kinetic_k8s.manifests.releases import JOBSET

UNAVAILABLE = {
    "conditions": [{"type": "Available", "status": "False", "message": "no minimum availability"}]
}
QUOTA = {"conditions": [{"type": "ReplicaFailure", "status": "True", "message": "exceeded quota"}]}


def definition(version: str | None = None) -> Manifest:
    return {"metadata": {"annotations": {} if version is None else {JOBSET.installed: version}}}


def controller(image: str, **status: Any) -> Manifest:
    pod = {"spec": {"containers": [{"image": "proxy:v1"}, {"image": image}]}}
    return {"spec": {"template": pod}, "status": status}


def pod(message: str) -> Manifest:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    return {
        "metadata": {"name": "p", "uid": "1"},
        "spec": {"containers": [{"name": "manager"}]},
        "status": {"phase": "Pending", "conditions": [{**condition, "message": message}]},
    }


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("registry.k8s.io/jobset/jobset:v0.11.1", "v0.11.1"),
        ("registry.example:5000/jobset:v0.8.0@sha256:00", "v0.8.0"),
        ("registry.example:5000/jobset@sha256:00", "unknown"),
        ("registry.example/not-a-jobset:v1", ""),
    ],
)
def test_jobset_of_others_is_named_with_the_version_of_its_image(image: str, version: str) -> None:
    found = addon_of(JOBSET, definition(None), [controller(image, availableReplicas=1)])

    assert (found.ours, found.version, found.problem) == (False, version, "")


def test_jobset_without_a_visible_controller_counts_as_ready_if_it_is_not_ours() -> None:
    assert not addon_of(JOBSET, definition(None)).problem


@pytest.mark.parametrize(
    ("status", "pods", "problem"),
    [
        ({}, [], "not started yet"),
        (UNAVAILABLE, [], "no minimum availability"),
        (QUOTA, [], "exceeded quota"),
        (UNAVAILABLE, [pod("0/1 nodes are available")], "0/1 nodes are available"),
        ({**UNAVAILABLE, "availableReplicas": 1}, [pod("0/1 nodes are available")], ""),
    ],
)
def test_our_jobset_is_ready_as_soon_as_its_controller_is_available(
    status: Manifest, pods: list[Manifest], problem: str
) -> None:
    found = addon_of(JOBSET, definition("v1"), [controller("jobset:v1", **status)], pods)

    assert (found.ours, found.version) == (True, "v1")
    assert problem in found.problem if problem else not found.problem


def test_our_jobset_without_a_controller_was_interrupted() -> None:
    assert addon_of(JOBSET, definition("v1")).problem == "Its installation was interrupted."
