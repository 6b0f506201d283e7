"""Node pools that are missing, in the list of the GKE API."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from kinetic.backends.gke.checks import check_pools
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


def a_request(accelerator: str, overrides: Any = {}, labels: Any = {}, **environ: str) -> Any:
    return SimpleNamespace(
        accelerator=parse_accelerator(accelerator),
        pod_overrides={"spec": overrides},
        labels=labels,
        semantics="pathways" if environ else "gke",
        settings=resolve({}, environ=environ, user_home=Path("/home")),
    )


def check(gke: GkeServer, accelerator: str, *, by: Any = {}, **fields: Any) -> str | None:
    gke.add("demo", server="https://10.0.0.1", ca="-", node_pools=[L4], **fields)
    found = GkeApi(gke.endpoint).cluster("test-project", "us-central1-a", "demo")
    return check_pools(a_request(accelerator, **by), found)


def test_a_missing_pool_is_refused_with_the_nearest_one(gke: GkeServer) -> None:
    assert check(gke, "l4x4") is None
    with pytest.raises(
        InvalidRequestError, match="'demo' has no machines for l4: 1 × nvidia-l4"
    ) as caught:
        check(gke, "l4", by={"overrides": {"priorityClassName": "low"}})

    assert "The pool gpus (g2-standard-48, 4 × nvidia-l4) does not fit" in str(caught.value)
    assert "kinetic pool add --accelerator l4" in str(caught.value)


def test_a_pool_that_was_added_after_the_cluster_was_found_counts(gke: GkeServer) -> None:
    gke.add("demo", server="https://10.0.0.1", ca="-")
    found = GkeApi(gke.endpoint).cluster("test-project", "us-central1-a", "demo")
    gke.add("demo", server="https://10.0.0.1", ca="-", node_pools=[L4])

    assert check_pools(a_request("l4x4"), found) is None


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"autoscaling": {"enable_node_autoprovisioning": True}}, "GKE may add it"),
        ({"autopilot": {"enabled": True}}, "GKE may add it"),
        ({"autoscaling": {"default_compute_class_config": {"enabled": True}}},
            "The default ComputeClass may add it"),
        ({"by": {"overrides": {"tolerations": [{"key": "a"}]}}}, "it may be placed elsewhere"),
        ({"by": {"labels": {"kueue.x-k8s.io/queue-name": "research"}}}, "it may be placed elsewhere"),
        ({"by": {"KINETIC_PATHWAYS_WORKER_TOLERATIONS": "team"}}, "it may be placed elsewhere"),
    ],
)  # fmt: skip
def test_a_missing_pool_that_may_not_be_needed_is_a_warning(
    gke: GkeServer, how: dict[str, Any], message: str
) -> None:
    warning = check(gke, "v5e-8", **how) or ""

    assert "ct5lp-hightpu-8t" in warning
    assert message in warning
