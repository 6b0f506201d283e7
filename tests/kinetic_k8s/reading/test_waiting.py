"""What GKE's autoscaler reports about a pod without a node, beside the words of the scheduler."""

from __future__ import annotations

from typing import Any

import pytest

from kinetic_k8s.accelerators import parse_accelerator
from kinetic_k8s.manifests.placement import placement_of
from kinetic_k8s.reading.attempts import PodView
from kinetic_k8s.reading.causes import Diagnosis
from kinetic_k8s.reading.waiting import unscheduled

SCHEDULER = (
    "0/3 nodes are available: 1 Insufficient google.com/tpu, 2 node(s) didn't match Pod's node "
    "affinity/selector. preemption: 0/3 nodes are available: 3 No preemption victims found."
)
GROUP = (
    "https://www.googleapis.com/compute/v1/projects/p/zones/us-east5-a/instanceGroups/gke-c-np1-grp"
)
GROWS = ("TriggeredScaleUp", f"pod triggered scale-up: [{{{GROUP} 0->2 (max: 2)}}]")
FULL = ("NotTriggerScaleUp", "pod didn't trigger scale-up: 2 max node group size reached")
OTHER = (
    "NotTriggerScaleUp",
    "pod didn't trigger scale-up: 1 node(s) didn't match Pod's node affinity/selector",
)
BACKOFF = ("NotTriggerScaleUp", "pod didn't trigger scale-up: 1 in backoff after failed scale-up")
_FAILED = "Node scale up in zones {} associated with this pod failed: {}. Pod is at risk of not being scheduled."


def failed(why: str, zones: str = "us-east5-a") -> tuple[str, str]:
    return "FailedScaleUp", _FAILED.format(zones, why)


TPUS = placement_of(parse_accelerator("v5p-8")).selector


def diagnosed(
    *events: tuple[str, str], scheduler: str = SCHEDULER, slug: str = "v5p-8", **spec: Any
) -> Diagnosis:
    pod = {
        "metadata": {"name": "p", "uid": "u", "labels": {"kinetic.dev/accelerator": slug}},
        "spec": {"nodeSelector": TPUS, **spec},
    }
    found: list[dict[str, Any]] = [{"reason": reason, "message": text} for reason, text in events]
    why = unscheduled(PodView(pod), {"reason": "Unschedulable", "message": scheduler}, found)
    assert why is not None
    return why


@pytest.mark.parametrize(
    ("events", "cause", "remedy"),
    [
        ([], "insufficient", "Wait until other jobs end, request less"),
        ([GROWS], "scaling-up", "a TPU slice may take longer"),
        ([FULL], "pool-full", "raise the maximum size of the node pool"),
        ([OTHER], "insufficient", "Wait until other jobs end, request less"),
        ([BACKOFF], "scale-up-failed", ""),
        ([GROWS, failed("GCE quota exceeded")], "cloud-quota", "quota of the project in us-east5-a,"),
        ([GROWS, failed("GCE out of resources")], "stock-out", "no such machine free in us-east5-a at"),
        ([failed("GCE out of resources", "a, b")], "stock-out", "free in a, b at present"),
        ([("FailedScaleUp", "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS")], "stock-out", "free at present"),
        ([failed("GCE out of resources"), BACKOFF], "stock-out", "keeps trying"),
        ([failed("GCE quota exceeded"), GROWS], "scaling-up", "Wait"),
        ([failed("Internal error")], "scale-up-failed", ""),
    ],
)  # fmt: skip
def test_the_latest_event_of_the_autoscaler_decides_and_the_schedulers_message_stays(
    events: list[tuple[str, str]], cause: str, remedy: str
) -> None:
    found = diagnosed(*events)

    assert found.cause == cause
    assert SCHEDULER in found.reason
    assert all(text in found.reason for _, text in events[-1:])
    assert remedy in found.remedy
    assert bool(found.remedy) == bool(remedy)


@pytest.mark.parametrize(
    ("scheduler", "cause"),
    [
        # What the scheduler writes about preemption is not a cause.
        ("0/1 nodes are available: 1 strange. preemption: 1 Insufficient cpu.", "unschedulable"),
        ("0/2 nodes are available: 2 Too many pods.", "occupied"),
        (
            "0/2 nodes are available: 1 node(s) were unschedulable, 1 had untolerated taint {a: }.",
            "closed",
        ),
    ],
)
def test_the_schedulers_cause_is_found(scheduler: str, cause: str) -> None:
    assert diagnosed(scheduler=scheduler).cause == cause


NONE = "3 node(s) didn't match Pod's node affinity/selector"


@pytest.mark.parametrize(
    ("pod", "remedy"),
    [
        ({}, "topology=2x2x2), it is drained, tainted or not ready yet. To get one, add a pool: kinetic pool add --acc"),
        ({"nodeSelector": TPUS | {"team": "a"}}, "requires beside its accelerator (nodeSelector in pod_overrides"),
        # The head of Pathways, whose accelerator the workers have; and one of a later Kinetic.
        ({"nodeSelector": {"pool": "head"}}, "of its queue), or add nodes with them: pool=head"),
        ({"slug": "v99-8"}, "requires (nodeSelector"),
        ({"nodeSelector": {}}, "correct the pod's affinity."),
    ],
)  # fmt: skip
def test_the_remedy_is_a_command_or_names_the_users_selector(
    pod: dict[str, Any], remedy: str
) -> None:
    assert remedy in diagnosed(scheduler=f"0/4 nodes are available: {NONE}.", **pod).remedy


def test_more_nodes_are_not_announced_to_a_pod_whose_claim_is_missing() -> None:
    for claim in ('persistentvolumeclaim "d" not found', "pod has unbound immediate Persistent"):
        assert diagnosed(FULL, scheduler=f"0/1 nodes are available: {claim}.").cause == "volume"
