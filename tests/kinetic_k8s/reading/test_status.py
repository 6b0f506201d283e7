"""The status of a job and of its attempts, for every state in which its resource and its pods can be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kinetic_k8s.reading.status import State, WorkloadStatus, attempts_of, status_of

Manifest = dict[str, Any]
RECORDED: dict[str, Any] = json.loads(Path(__file__).with_name("recorded.json").read_text())


DELETED = {"deletionTimestamp": "now"}


def a_job(*conditions: str, suspend: bool = False, **status: Any) -> Manifest:
    true = [
        {"type": kind, "status": "True", "reason": f"{kind}Reason", "message": "words."}
        for kind in conditions
    ]
    return {
        "metadata": {"name": "kn-f-0a1b2c3", "uid": "u"},
        "spec": {"suspend": suspend},
        "status": {"conditions": true, **status},
    }


def a_pod(phase: str, state: Manifest | None = None, **more: Any) -> Manifest:
    metadata = {"name": "p", "uid": "p", "creationTimestamp": "2026-11-22T10:15:00Z"}
    disrupted = [{"type": "DisruptionTarget", "status": "True", "message": "preempted"}]
    return {
        "metadata": metadata | ({"deletionTimestamp": "now"} if more.get("leaving") else {}),
        "status": {
            "phase": phase,
            "containerStatuses": [{"name": "kinetic", "state": state}] if state else [],
            "conditions": disrupted if more.get("disrupted") else [],
        },
    }


def terminated(code: int, reason: str = "Error") -> Manifest:
    return {"terminated": {"exitCode": code, "reason": reason}}


RUNNING: Manifest = {"running": {}}
NOT_STARTED = terminated(128, "StartError")
WAITING: Manifest = {"waiting": {"reason": "ContainerCreating"}}
REPLACED = "It waits for another pod to replace the last one."
ENDING = "Its pod has ended; the job is about to end or retry."


@pytest.mark.parametrize(
    ("job", "pods", "attempts", "expected"),
    [
        # Before it runs.
        (a_job(), [], 0, (State.PENDING, "", False)),
        (a_job(), [a_pod("Pending")], 0, (State.PENDING, "", False)),
        (a_job(), [a_pod("Pending", WAITING)], 0, (State.PENDING, "", False)),
        (a_job(suspend=True), [], 0, (State.PENDING, "It is suspended.", False)),
        (a_job() | {"metadata": DELETED}, [], 0, (State.PENDING, "It is being deleted.", False)),
        (a_job() | {"metadata": DELETED}, [], 1, (State.RUNNING, "It is being deleted.", False)),
        # A counter decides nothing: this one counts a pod of an attempt that is retried.
        (a_job(failed=1), [], 1, (State.RUNNING, REPLACED, False)),
        # While it runs.
        (a_job(), [a_pod("Running", RUNNING)], 0, (State.RUNNING, "", False)),
        (a_job(), [a_pod("Running", RUNNING, leaving=True)], 1,
         (State.RUNNING, "Its pod is being stopped.", False)),
        (a_job(), [a_pod("Running", terminated(0))], 0, (State.RUNNING, ENDING, False)),
        (a_job(), [a_pod("Failed", terminated(1))], 1, (State.RUNNING, ENDING, False)),
        (a_job(), [a_pod("Failed", terminated(143), disrupted=True)], 1, (State.RUNNING, REPLACED, False)),
        # A program that was not started has not run: not before another pod replaces it, nor afterwards.
        (a_job(), [a_pod("Failed", NOT_STARTED)], 0, (State.PENDING, ENDING, False)),
        (a_job(), [a_pod("Failed", NOT_STARTED), a_pod("Pending", WAITING)], 0, (State.PENDING, "", False)),
        (a_job(), [a_pod("Failed", NOT_STARTED)], 1, (State.RUNNING, ENDING, False)),
        # Between two attempts, only earlier observations show that it ran.
        (a_job(), [], 1, (State.RUNNING, REPLACED, False)),
        (a_job(), [a_pod("Pending", WAITING)], 1, (State.RUNNING, REPLACED, False)),
        # A queue took its place away: it waits, and has not failed.
        (a_job(suspend=True), [a_pod("Failed", terminated(143))], 1,
         (State.PENDING, "It was suspended while it ran, and waits to be resumed.", False)),
        (a_job(suspend=True), [a_pod("Running", RUNNING, leaving=True)], 1,
         (State.RUNNING, "Its pod is being stopped.", False)),
        # After its end, which is over when no pod is alive.
        (a_job("SuccessCriteriaMet"), [a_pod("Running", terminated(0))], 1, (State.SUCCEEDED, "", True)),
        (a_job("Complete"), [], 0, (State.SUCCEEDED, "", True)),
        (a_job("FailureTarget"), [a_pod("Running", RUNNING)], 1,
         (State.FAILED, "FailureTargetReason: words.", False)),
        (a_job("Failed"), [], 1, (State.FAILED, "FailedReason: words.", True)),
        # Without its resource.
        (None, [], 0, (State.ABSENT, "", True)),
        (None, [a_pod("Running", RUNNING, leaving=True)], 1,
         (State.RUNNING, "The job is deleted; its pod is still ending.", False)),
        (None, [a_pod("Running", terminated(0))], 1, (State.ABSENT, "", True)),
    ],
)  # fmt: skip
def test_conditions_decide_then_pods_then_earlier_observations(
    job: Manifest | None,
    pods: list[Manifest],
    attempts: int,
    expected: tuple[State, str, bool],
) -> None:
    assert status_of(job, pods, attempts=attempts) == WorkloadStatus(*expected)


@pytest.mark.parametrize(
    "pod",
    [
        a_pod("Failed", terminated(128, "StartError")),
        a_pod(
            "Failed", terminated(137, "ContainerStatusUnknown")
        ),  # Deleted before it had its image.
        a_pod("Failed", {"waiting": {"reason": "PodInitializing"}}),  # An init container failed.
        a_pod("Failed"),  # The node rejected it.
    ],
)
def test_a_pod_whose_program_was_not_started_has_not_run(pod: Manifest) -> None:
    assert status_of(a_job(suspend=True), [pod]).reason == "It is suspended."


def a_jobset(
    *conditions: str, hosts: int = 2, suspend: bool = False, role: str = "host", **status: Any
) -> Manifest:
    template = {"metadata": {"labels": {"kinetic.dev/role": "pathways-worker"}}}
    ours = {"metadata": {"labels": {"kinetic.dev/role": role}}}
    return {
        **a_job(*conditions, **status),
        "spec": {
            "suspend": suspend,
            "replicatedJobs": [
                {"name": "head", "template": {"spec": {"completions": hosts, "template": ours}}},
                {"name": "w", "template": {"spec": {"parallelism": 4, "template": template}}},
            ],
        },
    }


def a_host(index: int, phase: str, state: Manifest | None = None, **more: Any) -> Manifest:
    pod = a_pod(phase, state, **more)
    labels = {
        "batch.kubernetes.io/job-completion-index": str(index),
        "jobset.sigs.k8s.io/restart-attempt": str(more.get("restart", 0)),
        "kinetic.dev/role": more.get("role", "host"),
    }
    return {**pod, "metadata": {**pod["metadata"], "name": f"p-{index}", "labels": labels}}


RUNS = a_host(0, "Running", RUNNING)
INDEXED = {
    **a_job(),
    "spec": {"completionMode": "Indexed", "completions": 2},
}
LWS = {
    **a_job(),
    "spec": {
        "leaderWorkerTemplate": {
            "size": 3,
            "leaderTemplate": {"metadata": {"labels": {"kinetic.dev/role": "host"}}},
            "workerTemplate": {"metadata": {"labels": {"kinetic.dev/role": "pathways-worker"}}},
        }
    },
}
HALF = "1 of 2 hosts run; host 1 waits."
STOPPING = "Its pods are being stopped."
BETWEEN = "It waits for other pods to replace the last ones."


@pytest.mark.parametrize(
    ("workload", "pods", "attempts", "expected"),
    [
        # Pending until all hosts have started, even where the pods of the others do not exist yet.
        (a_jobset(), [RUNS], 0, (State.PENDING, HALF, False)),
        (INDEXED, [RUNS, a_host(1, "Pending")], 0, (State.PENDING, HALF, False)),
        (a_jobset(hosts=5), [RUNS], 0, (State.PENDING, "1 of 5 hosts run; hosts 1, 2, 3 and 4 wait.", False)),
        (a_jobset(hosts=64), [RUNS], 0,
         (State.PENDING, "1 of 64 hosts run; hosts 1, 2, 3 and 60 others wait.", False)),
        (a_jobset(), [RUNS, a_host(1, "Running", RUNNING)], 0, (State.RUNNING, "", False)),
        # From then on it runs: one may end before the other, and all may be restarted.
        (a_jobset(), [RUNS, a_host(1, "Failed", terminated(1))], 0, (State.RUNNING, "", False)),
        (a_jobset(), [RUNS], 1, (State.RUNNING, HALF, False)),
        (a_jobset(restarts=1), [], 0, (State.RUNNING, BETWEEN, False)),
        (a_jobset(restarts=1), [a_host(0, "Running", RUNNING, restart=1), a_host(1, "Failed", terminated(1))], 0,
         (State.RUNNING, HALF, False)),
        (a_jobset(), [RUNS, a_host(1, "Running", RUNNING, leaving=True)], 1, (State.RUNNING, STOPPING, False)),
        # One ended before the other could start.
        (a_jobset(), [a_host(0, "Failed", terminated(1)), a_host(1, "Pending", WAITING)], 0,
         (State.PENDING, "Host 0 has ended; host 1 waits.", False)),
        (a_jobset(), [a_host(0, "Failed", terminated(1)), a_host(1, "Failed", NOT_STARTED)], 0,
         (State.PENDING, "Its pods have ended; the job is about to end or retry.", False)),
        (a_jobset(suspend=True), [], 0, (State.PENDING, "It is suspended.", False)),
        # The conditions of a JobSet; it is over when no host is alive, whatever other pods do.
        (a_jobset("Completed"), [a_host(0, "Succeeded"), a_host(0, "Running", RUNNING, role="pathways-worker")], 1,
         (State.SUCCEEDED, "", True)),
        (a_jobset("Failed"), [RUNS], 1, (State.FAILED, "FailedReason: words.", False)),
        (a_jobset(terminalState="Failed"), [], 1, (State.FAILED, "Failed", True)),
        (a_jobset(terminalState="Completed"), [], 1, (State.SUCCEEDED, "", True)),
        # Under Pathways the head decides.
        (a_jobset(hosts=1), [RUNS], 0, (State.RUNNING, "", False)),
        (a_jobset(hosts=1), [a_host(0, "Running", RUNNING, role="pathways-worker")], 0, (State.PENDING, "", False)),
        # A LeaderWorkerSet runs as long as its leader does, and restarts its container.
        (LWS, [RUNS, a_host(1, "Pending", role="pathways-worker")], 0, (State.RUNNING, "", False)),
        (LWS, [], 0, (State.PENDING, "", False)),
        ({**LWS, "spec": {**LWS["spec"], "replicas": 0}}, [], 0, (State.PENDING, "It is suspended.", False)),
        (LWS, [], 1, (State.RUNNING, REPLACED, False)),
    ],
)  # fmt: skip
def test_a_job_on_several_hosts_runs_once_all_have_started(
    workload: Manifest, pods: list[Manifest], attempts: int, expected: tuple[State, str, bool]
) -> None:
    assert status_of(workload, pods, attempts=attempts) == WorkloadStatus(*expected)


def test_a_leader_whose_container_is_restarted_still_runs() -> None:
    again = {"waiting": {"reason": "CrashLoopBackOff"}}
    leader = a_host(0, "Running", again)
    leader["status"]["containerStatuses"][0]["lastState"] = terminated(1)

    assert status_of(LWS, [leader]).state is State.RUNNING


def states(workload: Manifest, *pods: Manifest) -> list[tuple[int, int, str, str]]:
    found = attempts_of(workload, pods)
    return [(each.number, each.hosts, each.state.value, each.message) for each in found]


def test_each_attempt_of_a_job_on_one_host_has_its_end() -> None:
    pods = [
        a_pod("Running", RUNNING),
        a_pod("Failed", terminated(143), disrupted=True),
        a_pod("Failed", terminated(137)),
    ]
    for pod, name, second in zip(pods, "cab", (3, 1, 2), strict=True):
        pod["metadata"] |= {"name": name, "creationTimestamp": f"2026-11-22T10:15:{second:02d}Z"}

    assert states(a_job(), *pods) == [
        (1, 1, "disrupted", "The cluster ended the pod: preempted"),
        (2, 1, "failed", "The container ended with exit code 137 (SIGKILL)."),
        (3, 1, "running", ""),
    ]
    # A JobSet counts, and removes the pods of earlier attempts.
    assert states(a_jobset(), a_host(1, "Running", RUNNING, restart=2)) == [(3, 1, "running", "")]


def test_an_attempt_that_the_queue_stopped_has_not_failed() -> None:
    job = a_job(suspend=True)
    job["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "research"}

    assert states(job, a_pod("Failed", terminated(143))) == [
        (1, 1, "disrupted", "The queue stopped it.")
    ]


@pytest.mark.parametrize(
    ("situation", "hosts", "state", "message"),
    [
        ("jobset: host 1 ends with 139, host 0 aborts", 2, "failed", "Host 1: The container ended with exit code 139"),
        ("jobset: one host is evicted", 2, "running", ""),
        ("jobset: host 1 has no room", 2, "running", ""),
        # Components are no hosts.
        ("pathways: workers crash", 1, "running", ""),
    ],
)  # fmt: skip
def test_an_attempt_on_several_hosts_has_the_message_of_the_first_to_end(
    situation: str, hosts: int, state: str, message: str
) -> None:
    workload, pods, _ = RECORDED[situation].values()
    [(number, *found, text)] = states(workload, *pods)

    assert (number, found) == (1, [hosts, state])
    assert text.startswith(message)
    assert bool(text) == bool(message)
