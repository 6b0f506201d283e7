"""Causes that a test bed cannot provoke, or that would take minutes; the others are in tests/cluster.

The texts are those of Kubernetes 1.34, Kueue 0.19 and GKE.
"""

from __future__ import annotations

from typing import Any

import pytest

from kinetic_k8s.reading.diagnosis import diagnosis_of

Manifest = dict[str, Any]
QUEUED = {"kueue.x-k8s.io/queue-name": "research"}


def a_job(
    failed: str | None = None, *, message: str = "", suspend: bool = False, **labels: str
) -> Manifest:
    conditions = [{"type": "Failed", "status": "True", "reason": failed, "message": message}]
    return {
        "metadata": {"name": "kn-f-0a1b2c3", "uid": "job", "labels": labels},
        "spec": {"suspend": suspend},
        "status": {"conditions": conditions if failed else []},
    }


def a_pod(
    state: Manifest | None = None,
    *,
    phase: str = "Pending",
    node: str | None = "node",
    condition: Manifest | None = None,
    **status: Any,
) -> Manifest:
    container = {"name": "kinetic", "image": "europe-docker.pkg.dev/p/r/i:1", "state": state or {}}
    return {
        "metadata": {"name": "p", "uid": "pod", "creationTimestamp": "2026-11-22T10:15:00Z"},
        "spec": {
            "nodeName": node,
            "containers": [{"resources": {"requests": {"google.com/tpu": "8"}}}],
            "nodeSelector": {"cloud.google.com/gke-tpu-topology": "2x4"},
        },
        "status": {
            "phase": phase,
            "containerStatuses": [container],
            "conditions": [condition] if condition else [],
            **status,
        },
    }


def waiting(reason: str, message: str) -> Manifest:
    return {"waiting": {"reason": reason, "message": message}}


def terminated(code: int, reason: str = "Error", message: str = "") -> Manifest:
    return {"terminated": {"exitCode": code, "reason": reason, "message": message}}


def unscheduled(message: str, reason: str = "Unschedulable") -> Manifest:
    condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    return a_pod(node=None, condition=condition)


def an_event(uid: str, reason: str, message: str, second: int = 0) -> Manifest:
    return {
        "metadata": {"creationTimestamp": f"2026-11-22T10:15:{second:02d}Z"},
        "involvedObject": {"uid": uid},
        "reason": reason,
        "message": message,
    }


PULL = "rpc error: code = %s desc = failed to pull and unpack image"
PLATFORM = PULL % "NotFound" + ": no match for platform in manifest: not found"
FORBIDDEN = PULL % "Unknown" + ": unexpected status: 403 Forbidden"
BACK_OFF = 'Back-off pulling image "europe-docker.pkg.dev/p/r/i:1"'
TPU = "0/3 nodes are available: 3 Insufficient google.com/tpu."
ROOM = "0/1 nodes are available: 1 Insufficient ephemeral-storage."
NO_TAG = PULL % "NotFound" + ' "europe-docker.pkg.dev/p/r/i:v403": not found'
TAINT = "0/1 nodes are available: 1 node(s) had untolerated taint {team: other}."
DISK = 'Usage of EmptyDir volume "workspace" exceeds the limit "1Gi". '
DISRUPTED = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "TerminationByKubelet",
    "message": "Pod was terminated in response to imminent node shutdown.",
}


@pytest.mark.parametrize(
    ("job", "pod", "events", "cause", "reason", "remedy"),
    [
        (a_job(), unscheduled(TPU), [], "insufficient", TPU, "requests 8 of google.com/tpu"),
        (a_job(), unscheduled(ROOM), [], "insufficient", ROOM, "Wait until other jobs end, or"),
        (a_job(), a_pod(waiting("ErrImagePull", NO_TAG)), [], "image", NO_TAG, "Check the name"),
        (a_job(), unscheduled(TAINT), [], "taint", TAINT, "without that taint"),
        (a_job(), unscheduled("held", "SchedulingGated"), [], "gated", "held", ""),
        (a_job(), unscheduled("0/1: strange"), [], "unschedulable", "0/1: strange", ""),
        (
            a_job(),
            a_pod(waiting("ErrImagePull", PLATFORM)),
            [],
            "image",
            PLATFORM,
            "Build the image for the machine's architecture",
        ),
        (
            a_job(),
            a_pod(waiting("ImagePullBackOff", BACK_OFF)),
            [an_event("pod", "Failed", f'Failed to pull image "i": {FORBIDDEN}')],
            "image",
            FORBIDDEN,
            "Let the service account of the cluster's nodes read that registry.",
        ),
        (
            a_job(),
            a_pod(
                initContainerStatuses=[
                    {"name": "fuse", "state": terminated(3, message="one\nthe last line")}
                ]
            ),
            [],
            "init",
            "fuse failed with exit code 3: the last line",
            "",
        ),
        (
            a_job(),
            a_pod(terminated(137), phase="Failed", reason="Evicted", message=DISK),
            [],
            "evicted",
            DISK,
            "belong in a bucket",
        ),
        (
            a_job(),
            a_pod(terminated(143), phase="Failed", condition=DISRUPTED),
            [],
            "disrupted",
            "imminent node shutdown",
            "",
        ),
        (a_job(), a_pod(terminated(139), phase="Failed"), [], "exit", "139 (SIGSEGV)", ""),
        (
            a_job("DeadlineExceeded", message="Job was active longer than specified deadline"),
            None,
            [],
            "deadline",
            "active longer than",
            "",
        ),
        # By somebody, or by a submit that was killed before it had created all.
        (a_job(suspend=True), None, [], "suspended", "It is suspended.", "submit it again"),
        (
            a_job(suspend=True, **QUEUED),
            None,
            [
                an_event("job", "Stopped", "Preempted to accommodate a workload (UID: 2)", 2),
                an_event("job", "Stopped", "Not admitted by cluster queue", 1),
                an_event("other", "Stopped", "Somebody else's", 3),
            ],
            "queued",
            "waits in the queue 'research'. Preempted to accommodate a workload (UID: 2).",
            "",
        ),
    ],
)
def test_a_cause_is_named_with_the_words_of_who_reports_it(
    job: Manifest,
    pod: Manifest | None,
    events: list[Manifest],
    cause: str,
    reason: str,
    remedy: str,
) -> None:
    found = diagnosis_of(job, [pod] if pod else [], events)

    assert found is not None
    assert found.cause == cause
    assert reason in found.reason
    assert remedy in found.remedy
    assert bool(found.remedy) == bool(remedy), "a remedy only where its own rule matched"


@pytest.mark.parametrize(
    ("job", "pods"),
    [
        (a_job(), []),
        (None, []),
        (a_job(), [a_pod(waiting("ContainerCreating", ""))]),
        (a_job(), [a_pod({"running": {}}, phase="Running")]),
        (a_job(), [a_pod(terminated(0, "Completed"), phase="Succeeded")]),
    ],
)
def test_where_no_rule_matches_nothing_is_said(job: Manifest | None, pods: list[Manifest]) -> None:
    assert diagnosis_of(job, pods) is None


def test_a_pod_that_has_a_node_never_lacks_capacity() -> None:
    # The condition of an earlier moment, still there beside the node that was found.
    pod = a_pod(
        waiting("ContainerCreating", ""), condition=unscheduled(TPU)["status"]["conditions"][0]
    )

    assert diagnosis_of(a_job(), [pod]) is None
