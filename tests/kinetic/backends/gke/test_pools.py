"""Node pools that are missing, in the list of the GKE API."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kinetic.backends.gke.checks import check_pools, placement_by_user
from kinetic.errors import InvalidRequestError
from kinetic.settings.settings import resolve
from kinetic_k8s.accelerators import parse_accelerator
from kinetic_k8s.cluster.gke import GkeApi

if TYPE_CHECKING:
    from kinetic_servers.gke import GkeServer

L4 = {
    "name": "gpus",
    "config": {
        "machine_type": "g2-standard-48",
        "accelerators": [{"accelerator_type": "nvidia-l4", "accelerator_count": 4}],
    },
    "autoscaling": {"enabled": True, "max_node_count": 2},
}


def check(gke: GkeServer, accelerator: str, *, placed_by: str = "", **fields: Any) -> str | None:
    gke.add("demo", server="https://10.0.0.1", ca="-", node_pools=[L4], **fields)
    found = GkeApi(gke.endpoint).cluster("test-project", "us-central1-a", "demo")
    return check_pools(parse_accelerator(accelerator), found, placed_by=placed_by)


def test_a_missing_pool_is_refused_with_the_nearest_one(gke: GkeServer) -> None:
    assert check(gke, "l4x4") is None
    with pytest.raises(
        InvalidRequestError, match="'demo' has no machines for l4: 1 × nvidia-l4"
    ) as caught:
        check(gke, "l4")

    assert "The pool gpus (g2-standard-48, 4 × nvidia-l4) does not fit" in str(caught.value)
    assert "kinetic pool add --accelerator l4" in str(caught.value)


def test_a_pool_that_was_added_after_the_cluster_was_found_counts(gke: GkeServer) -> None:
    gke.add("demo", server="https://10.0.0.1", ca="-")
    found = GkeApi(gke.endpoint).cluster("test-project", "us-central1-a", "demo")
    gke.add("demo", server="https://10.0.0.1", ca="-", node_pools=[L4])

    assert check_pools(parse_accelerator("l4x4"), found) is None


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"autoscaling": {"enable_node_autoprovisioning": True}}, "GKE may add it"),
        ({"autopilot": {"enabled": True}}, "GKE may add it"),
        ({"autoscaling": {"default_compute_class_config": {"enabled": True}}},
            "The default ComputeClass may add it"),
        ({"placed_by": "the queue 'research'"}, "because the queue 'research' may place it elsewhere"),
    ],
)  # fmt: skip
def test_a_missing_pool_that_may_not_be_needed_is_a_warning(
    gke: GkeServer, how: dict[str, Any], message: str
) -> None:
    warning = check(gke, "v5e-8", **how) or ""

    assert "ct5lp-hightpu-8t" in warning
    assert message in warning


@pytest.mark.parametrize(
    ("spec", "labels", "worker", "expected"),
    [
        ({"priorityClassName": "low"}, {"team": "a"}, "", ""),
        ({"tolerations": [{"key": "a"}]}, {}, "", "pod_overrides (spec.tolerations)"),
        ({"nodeSelector": {"compute-class": "a"}}, {}, "", "pod_overrides (spec.nodeSelector)"),
        ({"affinity": {"nodeAffinity": {}}}, {}, "", "pod_overrides (spec.affinity)"),
        ({}, {"kueue.x-k8s.io/queue-name": "research"}, "", "the queue 'research'"),
        ({}, {}, "team", "the setting pathways_worker_tolerations"),
    ],
)
def test_the_setting_that_places_pods_is_named(
    tmp_path: Path, spec: dict[str, Any], labels: dict[str, str], worker: str, expected: str
) -> None:
    environ = {"KINETIC_PATHWAYS_WORKER_TOLERATIONS": worker} if worker else {}
    settings = resolve({}, environ=environ, user_home=tmp_path)

    assert placement_by_user({"spec": spec}, labels, settings) == expected
    if worker:
        assert placement_by_user({"spec": spec}, labels, None) == ""
