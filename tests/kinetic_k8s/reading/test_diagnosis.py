"""Why jobs wait or have failed, from objects that were recorded on a real cluster.

`recorded.json` has the workload, the pods and the events of each situation, as Kubernetes 1.34, JobSet 0.12
and LeaderWorkerSet 0.10 reported them, without the fields that nobody reads. What the test bed cannot
provoke is written by hand, in the words of Kubernetes and GKE.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kinetic_k8s.reading.diagnosis import diagnosis_of, event_fields
from kinetic_k8s.reading.status import status_of

Manifest = dict[str, Any]
RECORDED: dict[str, Any] = json.loads(Path(__file__).with_name("recorded.json").read_text())
IMAGE = "europe-docker.pkg.dev/p/r/i:1"
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
    container = {"name": "kinetic", "image": IMAGE, "state": state or {}}
    return {
        "metadata": {"name": "p", "uid": "pod", "creationTimestamp": "2026-11-22T10:15:00Z"},
        "spec": {
            "nodeName": node,
            "containers": [
                {"name": "added-by-overrides", "resources": {"requests": {"cpu": "1"}}},
                {"name": "kinetic", "resources": {"requests": {"google.com/tpu": "8"}}},
            ],
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
    about = {"kind": "Job", "name": "kn-f-0a1b2c3"} if uid == "job" else {"kind": "Pod"}
    return {
        "metadata": {"creationTimestamp": f"2026-11-22T10:15:{second:02d}Z"},
        "involvedObject": {"uid": uid, **about},
        "reason": reason,
        "message": message,
    }


PULL = "rpc error: code = %s desc = failed to pull and unpack image"
FORBIDDEN = PULL % "Unknown" + ": unexpected status: 403 Forbidden"
BACK_OFF = f'Back-off pulling image "{IMAGE}"'
TPU = "0/3 nodes are available: 3 Insufficient google.com/tpu."
ROOM = "0/1 nodes are available: 1 Insufficient ephemeral-storage."
NO_TAG = PULL % "NotFound" + ' "europe-docker.pkg.dev/p/r/i:v403": not found'
TAINT = "0/1 nodes are available: 1 node(s) had untolerated taint {team: other}."
POLICY = 'pods "p" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true'
NO_OBJECT = "CreateContainerConfigError"
SUBMIT_AGAIN = "Submit the job again"
CREATE = "Create it, or correct its name in pod_overrides."
DISRUPTED = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "TerminationByKubelet",
    "message": "Pod was terminated in response to imminent node shutdown.",
}


@pytest.mark.parametrize(
    ("job", "pod", "events", "cause", "reason", "remedy"),
    [
        (a_job(), unscheduled(TPU), [], "insufficient", TPU, "request less"),
        (a_job(), unscheduled(ROOM), [], "insufficient", ROOM, "Wait until other jobs end, request less"),
        (a_job(), unscheduled(TAINT), [], "closed", TAINT, "have no such taint"),
        (a_job(), unscheduled("held", "SchedulingGated"), [], "gated", "held", ""),
        (a_job(), unscheduled("0/1: strange"), [], "unschedulable", "0/1: strange", ""),
        (a_job(), a_pod(waiting("ErrImagePull", NO_TAG)), [], "image", NO_TAG, "Check the name"),
        (a_job(), a_pod(waiting("InvalidImageName", "invalid reference")), [], "image-name", "invalid", "Correct"),
        (a_job(), a_pod(waiting("ImagePullBackOff", BACK_OFF)),
         [an_event("pod", "Failed", f'Failed to pull image "{IMAGE}": {FORBIDDEN}')],
         "image", FORBIDDEN, "Let the service account of the cluster's nodes read that registry."),
        (a_job(), a_pod(terminated(143), phase="Failed", condition=DISRUPTED), [], "disrupted",
         "imminent node shutdown", ""),
        (a_job("DeadlineExceeded", message="Job was active longer than specified deadline"), None, [], "deadline",
         "active longer than", ""),
        (a_job(), None, [an_event("job", "FailedCreate", f"Error creating: {POLICY}")], "pod-security", POLICY, "another namespace"),
        # By a user, or by a submit that was killed before it had created all.
        (a_job(suspend=True), None, [], "suspended", "It is suspended.", "submit it again"),
        (a_job(suspend=True, **QUEUED), None,
         [an_event("job", "Stopped", "Preempted to accommodate a workload (UID: 2)", 2),
          an_event("job", "Stopped", "Not admitted by cluster queue", 1),
          an_event("other", "Stopped", "Of another job", 3)],
         "queued", "waits in the queue 'research'. Preempted to accommodate a workload (UID: 2).", ""),
    ],
)  # fmt: skip
def test_a_cause_is_reported_with_the_message_of_its_source(
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
    ("situation", "state", "cause", "reason", "remedy"),
    [
        # Several hosts: the one that waits, or the one that ended first.
        ("jobset: host 1 has no room", "PENDING", "insufficient",
         "Host 1: No node accepts the pod: 0/1 nodes are available: 1 Insufficient cpu.",
         "request less"),
        ("jobset: node pool occupied", "PENDING", "occupied",
         "Host 0: No node accepts the pod: 0/1", "runs one job at a time"),
        ("jobset: service account", "PENDING", "service-account",
         'serviceaccount "nobody" not found', "kubectl create serviceaccount nobody"),
        ("jobset: host 1 ends with 139, host 0 aborts", "RUNNING", "exit",
         "Host 1: The container ended with exit code 139 (SIGSEGV): host 1", ""),
        ("jobset: the pod of the host at fault is gone", "FAILED", "exit",
         "134 (SIGABRT): host 0. The pod of host 1 is gone: it may have ended first.", ""),
        ("jobset: out of memory", "FAILED", "out-of-memory", "Host 1: A process was killed", "memory='128Mi'"),
        ("jobset: one host is evicted", "RUNNING", "disrupted", "Host 1: The cluster ended the pod: Eviction", ""),
        ("jobset: a pod was deleted", "RUNNING", "exit", "The pod of host 1 is gone", ""),
        ("jobset: a pod was deleted, all are gone", "FAILED", "pod-gone",
         "A pod of the job was deleted, perhaps with its node or after its end: jobset failed", ""),
        ("jobset: suspended", "PENDING", "suspended", "It is suspended.", "kubectl patch jobset js-susp --type merge"),
        # Pathways: the head decides, and what its sidecars and the workers do explains it.
        ("pathways: workers wait", "RUNNING", "no-node",
         "pathways-worker 0 does not run. No node accepts the pod", "no=such"),
        ("pathways: workers crash", "RUNNING", "crash",
         "pathways-worker has ended 2 times, last with exit code 1: no accelerator", ""),
        # Only the child Job's name in the condition tells that the head was stopped because of the workers.
        ("pathways: workers failed", "FAILED", "exit",
         "pathways-worker 0 failed. The container ended with exit code 1: no accelerator", ""),
        ("pathways: resource manager not in the image", "PENDING", "sidecar",
         'pathways-rm has ended 4 times, last with exit code 128: failed to create containerd task', ""),
        ("pathways: resource manager crashes", "PENDING", "sidecar",
         "pathways-rm has ended 4 times, last with exit code 1: bad instance type", ""),
        ("pathways: image of the proxy", "PENDING", "image", "kinetic.test/proxy:1: not found", "the image 'kinetic.test/proxy:1'"),
        ("leaderworkerset: no node for workers", "RUNNING", "no-node", "pathways-worker 1 does not run. No node", ""),
        ("leaderworkerset: service account", "PENDING", "service-account",
         "create Pod lws-account-0 in StatefulSet lws-account failed error", "create serviceaccount nobody"),
        ("leaderworkerset: quota of the workers", "RUNNING", "quota",
         "create Pod lws-quota-0-1 in StatefulSet lws-quota-0 failed error", "ask for a larger quota"),
        # One host.
        ("job: claim", "PENDING", "volume", 'persistentvolumeclaim "datasets" not found', "pod_overrides"),
        ("job: init failed", "FAILED", "init", "prepare failed with exit code 1: no such file: /x", ""),
        ("job: init image", "PENDING", "image", "kinetic.test/nope:1: not found", "'kinetic.test/nope:1'"),
        ("job: limit range", "PENDING", "pod-creation", "but limit is 64Mi", ""),
        ("job: ephemeral storage", "FAILED", "evicted", "total limit of containers 20Mi.", "belong in a bucket"),
        ("job: emptyDir", "FAILED", "evicted", 'EmptyDir volume "workspace" exceeds', "belong in a bucket"),
        ("job: python3 not found", "FAILED", "no-program", 'exec: "/no/python3": ', "has no program '/no/python3'"),
        ("job: runner not found", "FAILED", "exit", "exit code 2: python3: can't open file", ""),
        ("job: cloudpickle not found", "FAILED", "image-requirements", "No module named 'cloudpickle'", "Install cloudpickle"),
        ("job: architecture", "PENDING", "image", "no match for platform in manifest", "for the machine's architecture"),
    ],
)  # fmt: skip
def test_recorded_situations_are_explained(
    situation: str, state: str, cause: str, reason: str, remedy: str
) -> None:
    workload, pods, events = RECORDED[situation].values()
    found = diagnosis_of(workload, pods, events)

    # Only earlier observations show that an evicted host had run.
    assert status_of(workload, pods, attempts=int("evicted" in situation)).state == state
    assert found is not None
    assert found.cause == cause
    assert reason in found.reason
    assert remedy in found.remedy
    assert len(event_fields(workload, pods)) <= 2


LOST = "The container could not be located when the pod was terminated"


@pytest.mark.parametrize(
    ("missing", "remedy"),
    [
        ('secret "kn-f-0a1b2c3-env"', SUBMIT_AGAIN),
        ('secret "kinetic-key"', SUBMIT_AGAIN),
        ('configmap "kn-runner-0a1b"', SUBMIT_AGAIN),
        ('secret "another-env"', CREATE),
        ('secret "kn-runner-0a1b"', CREATE),
        ('configmap "kinetic-key"', CREATE),
    ],
)
def test_submit_again_is_advised_only_for_objects_that_a_submit_creates(
    missing: str, remedy: str
) -> None:
    text = f"{missing} not found"
    mount = an_event("pod", "FailedMount", f'MountVolume.SetUp failed for volume "v" : {text}')
    for pod, events in (
        (a_pod(waiting(NO_OBJECT, text)), []),
        (a_pod(waiting("ContainerCreating", "")), [mount]),
    ):
        found = diagnosis_of(a_job(), [pod], events)

        assert found is not None
        assert found.cause == "missing-object"
        assert text in found.reason
        assert found.remedy.startswith(remedy)


KILLED = a_pod(terminated(137), phase="Failed")
DELETED = {"deletionTimestamp": "2026-11-22T10:16:00Z"}
LEAVING = {**KILLED, "metadata": KILLED["metadata"] | DELETED}


@pytest.mark.parametrize(
    ("pod", "job", "why"),
    [
        (LEAVING, {}, "pod-deleted: The job's pod was deleted"),
        # A function that kills its own process; a Job that is removed with its pods.
        (KILLED, {}, "exit: The container ended with exit code 137 (SIGKILL)."),
        (LEAVING, DELETED, "exit: "),
        (a_pod(terminated(143), phase="Failed"), {}, "disrupted: "),
        # The node has restarted.
        (a_pod(terminated(137, "ContainerStatusUnknown", LOST), phase="Failed"), {}, f"exit: The container ended with exit code 137 (SIGKILL): {LOST}"),
        # Pods are also removed long after their end.
        (None, {}, "pod-gone: The job's pod was deleted, perhaps with its node or after its end: the limit."),
    ],
)  # fmt: skip
def test_a_deletion_is_reported_only_where_the_pod_shows_it(
    pod: Manifest | None, job: Manifest, why: str
) -> None:
    failed = a_job("BackoffLimitExceeded", message="the limit")
    found = diagnosis_of({**failed, "metadata": failed["metadata"] | job}, [pod] if pod else [])

    assert found is not None
    assert f"{found.cause}: {found.reason}".startswith(why)


def test_events_are_selected_of_the_object_that_reports_the_cause() -> None:
    account = RECORDED["jobset: service account"]
    waits = RECORDED["jobset: host 1 has no room"]
    workers = RECORDED["leaderworkerset: quota of the workers"]
    suspended = RECORDED["jobset: suspended"]

    assert event_fields(account["workload"], account["pods"]) == [
        "involvedObject.kind=Job,involvedObject.name=js-account-worker-0"
    ]
    assert event_fields(waits["workload"], waits["pods"]) == [
        f"involvedObject.uid={waits['pods'][1]['metadata']['uid']}"
    ]
    assert event_fields(workers["workload"], workers["pods"]) == [
        "involvedObject.kind=StatefulSet,involvedObject.name=lws-quota-0"
    ]
    # Kueue reports there why it stopped a job.
    assert event_fields(suspended["workload"], []) == [
        "involvedObject.kind=JobSet,involvedObject.name=js-susp"
    ]


def test_a_cause_that_was_removed_is_not_reported_again() -> None:
    # An event lives for an hour. The times of events have fractions of a second, or not.
    failed = an_event("job", "FailedCreate", "Error creating: exceeded quota: none", 1)
    created = an_event("job", "SuccessfulCreate", "Created pod: p", 1)
    created["eventTime"] = "2026-11-22T10:15:01.500000Z"

    found = diagnosis_of(a_job(), [], [created, failed])
    again = diagnosis_of(a_job(), [], [created, failed | {"lastTimestamp": "2026-11-22T10:15:02Z"}])

    assert found is None
    assert again is not None
    assert again.cause == "quota"


def test_refusals_of_webhooks_that_pass_by_themselves_are_no_cause() -> None:
    # JobSet's own, until the leader has a node.
    occupied = RECORDED["jobset: node pool occupied"]
    refusals = [event for event in occupied["events"] if "follower pod" in event["message"]]
    assert refusals
    assert diagnosis_of(occupied["workload"], [], refusals) is None

    # Kueue's, of a pod whose job was deleted a moment ago.
    refused = (
        'Error creating: admission webhook "mpod.kb.io" denied the request: {} "job" not found'
    )
    job, other = (
        an_event("job", "FailedCreate", refused.format(what)) for what in ("Job.batch", "ConfigMap")
    )
    assert diagnosis_of(a_job(), [], [job]) is None
    found = diagnosis_of(a_job(), [], [other])
    assert found is not None
    assert "mpod.kb.io" in found.reason


CREATING: Manifest = {"waiting": {"reason": "ContainerCreating"}}


@pytest.mark.parametrize(
    ("pods", "events", "cause", "remedy"),
    [
        ([], [], "no-pod", "kubectl describe job kn-f-0a1b2c3"),
        ([a_pod(node=None)], [], "not-scheduled", "kubectl describe pod p"),
        ([a_pod(CREATING)], [], "starting", "kubectl describe pod p"),
        ([a_pod(CREATING)], [an_event("pod", "Pulling", f'Pulling image "{IMAGE}"')], "starting", "kubectl"),
    ],
)  # fmt: skip
def test_a_long_wait_names_the_step_that_does_not_end(
    pods: list[Manifest], events: list[Manifest], cause: str, remedy: str
) -> None:
    found = diagnosis_of(a_job(), pods, events, waited=240)

    assert diagnosis_of(a_job(), pods, events, waited=60) is None
    assert found is not None
    assert found.cause == cause
    assert "4 min" in found.reason
    assert remedy in found.remedy


def test_a_job_whose_pod_was_created_is_not_reported_as_having_none() -> None:
    created = an_event("job", "SuccessfulCreate", "Created pod: kn-f-0a1b2c3-x7k2p", 1)

    assert diagnosis_of(a_job(), [], [created], waited=240) is None
    assert diagnosis_of(a_job(), [], waited=240, begun=True) is None


NO_ROOM = unscheduled(TPU)["status"]["conditions"][0]
REFUSED = an_event("job", "FailedCreate", f"Error creating: {POLICY}")


@pytest.mark.parametrize(
    ("job", "pods", "events"),
    [
        (a_job(), [], []),
        (None, [], []),
        (a_job(), [a_pod(terminated(0, "Completed"), phase="Succeeded")], []),
        # A refusal of a pod that exists by now.
        (a_job(), [a_pod({"running": {}}, phase="Running")], [REFUSED]),
        # The condition of an earlier moment, still there beside the node that was found.
        (a_job(), [a_pod(waiting("ContainerCreating", ""), condition=NO_ROOM)], []),
    ],
)
def test_a_job_without_a_problem_has_no_diagnosis(
    job: Manifest | None, pods: list[Manifest], events: list[Manifest]
) -> None:
    assert diagnosis_of(job, pods, events) is None
