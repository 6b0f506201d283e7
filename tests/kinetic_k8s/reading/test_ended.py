"""How pods ended, and which of several hosts ended first."""

from __future__ import annotations

from typing import Any

import pytest

from kinetic_k8s.reading.attempts import PodView
from kinetic_k8s.reading.ended import ending_of, first_to_fail


def a_pod(host: int = 0, *, second: int = 0, limit: str | None = None, **pod: Any) -> PodView:
    """Return a pod whose container ended with `code` and `reason`, or whose status has other fields."""
    ended = {
        "exitCode": pod.pop("code", 137),
        "reason": pod.pop("why", "Error"),
        "finishedAt": f"2026-11-22T10:15:{second:02d}Z",
        "message": pod.pop("text", ""),
    }
    index = {"batch.kubernetes.io/job-completion-index": str(host)}
    leaving = {name: pod.pop(name) for name in ("deletionTimestamp",) if name in pod}
    limits = {"limits": {"memory": limit}} if limit else {}
    return PodView(
        {
            "metadata": {"name": f"p{host}", "labels": index, **leaving},
            "spec": {"nodeName": "gke-1", "containers": [{"name": "kinetic", "resources": limits}]},
            "status": {
                "phase": "Failed",
                "containerStatuses": [{"name": "kinetic", "state": {"terminated": ended}}],
                **pod,
            },
        }
    )


def disrupted(reason: str, message: str, second: int | None = None) -> dict[str, Any]:
    kind: dict[str, Any] = {"type": "DisruptionTarget", "status": "True"}
    if second is not None:
        kind["lastTransitionTime"] = f"2026-11-22T10:15:{second:02d}Z"
    return {"conditions": [{**kind, "reason": reason, "message": message}]}


EVICTED = disrupted("EvictionByEvictionAPI", "evicting", second=0)


def oom(limit: str | None, code: int = 137, text: str = "") -> PodView:
    return a_pod(code=code, why="OOMKilled", limit=limit, text=text)


@pytest.mark.parametrize(
    ("pod", "cause", "words"),
    [
        (oom("1.5G"), "out-of-memory", "its limit of 1.5G of memory. Use less memory, or try memory='3Gi'"),
        (oom(None), "out-of-memory", "the node ran out of memory. Request what the job needs: memory="),
        # A child ran out of memory, which explains the exit code of its parent.
        (oom("16Gi", 1, "no worker"), "out-of-memory", "16Gi of memory. The container ended with exit code 1: no worker"),
        # The kubelet and the garbage collector of pods, when a node is lost.
        (a_pod(**disrupted("DeletionByPodGC", "PodGC: node no longer exists")), "node-lost", "The node gke-1 was"),
        (a_pod(**disrupted("PreemptionByScheduler", "preempting")), "disrupted", "preempting"),
        (a_pod(reason="Evicted", message="The node was low on resource: memory."), "evicted", "set memory="),
        (
            a_pod(reason="Evicted", message='Usage of EmptyDir volume "shared-memory" exceeds the limit "1Gi".'),
            "evicted",
            "a larger shared_memory=",
        ),
        (
            a_pod(reason="OutOfcpu", message="Pod was rejected: Node didn't have enough resource: cpu", containerStatuses=[]),
            "rejected",
            "The node gke-1 did not run the pod: Pod was rejected",
        ),
        (
            a_pod(containerStatuses=[], deletionTimestamp="2026-11-23T07:32:47Z"),
            "never-started",
            "deleted before its container started",
        ),
        (a_pod(code=4, text="no /dev/vfio"), "bad-node", "The accelerator of the node gke-1 cannot be initialised. "),
        (a_pod(code=128, why="StartError", text='exec: "/a": exec format error'), "architecture", "Build the image"),
        (
            # What the runner writes.
            a_pod(
                code=2,
                text="[kinetic] gs://b is a bucket, and google-cloud-storage is not installed here.\n"
                "Install it: pip install google-cloud-storage\n",
            ),
            "image-requirements",
            "Install google-cloud-storage in the image.",
        ),
        (
            a_pod(code=2, text="[kinetic] cloudpickle is not installed for /usr/bin/python3. Kinetic needs it."),
            "image-requirements",
            "Install cloudpickle in the image.",
        ),
        # After its report, the runner prints a line that only programs read.
        (a_pod(code=143, text="no more work\n[kinetic:end] cpu-f-20261122 attempt 1 host 0\n"), "disrupted", "(SIGTERM): no more work"),
    ],
)  # fmt: skip
def test_an_ending_is_explained(pod: PodView, cause: str, words: str) -> None:
    found = ending_of(pod)

    assert found is not None
    assert found.cause == cause
    assert words in f"{found.reason} {found.remedy}"


@pytest.mark.parametrize(
    ("pods", "first"),
    [
        # A host that crashed, and those that lost it a moment later.
        ([a_pod(0, code=134, second=6), a_pod(1, code=139, second=5), a_pod(2, code=134, second=6)], 1),
        # Clocks differ, and their times are whole seconds.
        ([a_pod(0, code=134, second=5), a_pod(1, code=139, second=6)], 1),
        ([a_pod(0, code=134, second=5), a_pod(1, code=1, second=30)], 0),
        # Those that were stopped afterwards do not count, whenever they were.
        ([a_pod(0, code=143, second=3), a_pod(1, code=1, second=9)], 1),
        ([a_pod(0, code=137, second=3), a_pod(1, why="OOMKilled", second=9)], 1),
        ([a_pod(0, code=143, second=9), a_pod(1, code=143, second=3)], 1),
        ([a_pod(0, code=1), a_pod(1, **disrupted("EvictionByEvictionAPI", "evicting"))], 0),
        ([a_pod(0, code=0)], None),
        # The grace period of an eviction is longer than the host that lost the evicted one.
        ([a_pod(0, code=134, second=5), a_pod(1, code=143, second=30, **EVICTED)], 1),
        ([a_pod(0, code=1, second=5), a_pod(1, code=143, second=30, **EVICTED)], 1),
        ([a_pod(0, code=134, second=1), a_pod(1, code=134, second=1, **EVICTED)], 1),
        ([a_pod(0, code=1, second=5), a_pod(1, code=143, second=40, **disrupted("E", "e", second=30))], 0),
        # A host that succeeded is no cause, whatever else its pod shows.
        ([a_pod(0, code=0, why="OOMKilled", second=1), a_pod(1, code=1, second=9)], 1),
        ([a_pod(0, code=0, phase="Succeeded", **EVICTED), a_pod(1, code=1, second=9)], 1),
    ],
)  # fmt: skip
def test_the_first_host_to_fail_is_found(pods: list[PodView], first: int | None) -> None:
    found = first_to_fail(pods)

    assert (found.host if found else None) == first
