"""How pods and jobs ended, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from kinetic_k8s.quantity import parse_quantity
from kinetic_k8s.reading.attempts import NEVER_STARTED, PodView, named
from kinetic_k8s.reading.causes import EVICTED, NOT_STARTED, WRITTEN, Diagnosis, explained
from kinetic_k8s.reading.workloads import WorkloadView
from kinetic_payload.layout import END_MARKER, EXIT_BAD_NODE, EXIT_TERMINATED
from kinetic_payload.memory import memory_to_try

_SIGNALS: Final = {6: "SIGABRT", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"}
_KILLED: Final = 128 + 9
_STOPPED: Final = (_KILLED, 128 + 15)
"""Exit codes of a container that was told to stop."""
_ABORTED: Final = 128 + 6
"""The exit code of a host that lost another one, among others."""
_AT_ONCE: Final = timedelta(seconds=2)
"""Ends closer than that have no certain order: times are whole seconds, of different clocks."""
_UNKNOWN: Final = datetime.max.replace(tzinfo=UTC)
_NODE_LOST: Final = ("DeletionByPodGC", "DeletionByTaintManager")


def ending_of(pod: PodView) -> Diagnosis | None:
    """Return how *pod* ended, unless it succeeded."""
    if pod.phase == "Succeeded":
        return None
    if pod.disruption:
        if pod.condition("DisruptionTarget").get("reason") in _NODE_LOST:
            where = f"The node {pod.node}" if pod.node else "The pod's node"
            return Diagnosis("node-lost", f"{where} was lost: {pod.disruption}")
        return Diagnosis("disrupted", f"The cluster ended the pod: {pod.disruption}")
    message = str(pod.status.get("message") or "").strip()
    if pod.status.get("reason") == "Evicted":
        return explained(f"The node evicted the pod: {message}", message, EVICTED, "evicted")
    if (failed := failed_init(pod)) is not None:
        return failed
    ended = pod.ends
    if pod.phase == "Failed" and not ended:
        if message:
            return Diagnosis("rejected", f"The node {pod.node} did not run the pod: {message}")
        what = "was deleted" if pod.leaving else "failed"
        return Diagnosis("never-started", f"The pod {what} before its container started.")
    code = ended.get("exitCode")
    if not code:
        return None
    # If a child of the command ran out of memory, the exit code is the command's own, even 0.
    if ended.get("reason") == "OOMKilled":
        limit = pod.container_spec.get("resources", {}).get("limits", {}).get("memory")
        # If only a process of the function was killed, the runner reports the peak of what the container used.
        also = f" The container ended with {exit_of(ended)}" if code != _KILLED else ""
        if limit is None:
            return Diagnosis(
                "out-of-memory",
                f"A process was killed because the node ran out of memory.{also}",
                "Request what the job needs: memory=",
            )
        return Diagnosis(
            "out-of-memory",
            f"A process was killed: the container used more than its limit of {limit} of memory.{also}",
            f"Use less memory, or try memory={memory_to_try(int(parse_quantity(limit) or 0))!r}.",
        )
    text = str(ended.get("message") or "")
    if ended.get("reason") in NEVER_STARTED:
        return explained(f"The container could not start: {text}", text, NOT_STARTED, "start")
    reason = f"The container ended with {exit_of(ended)}"
    if code == EXIT_TERMINATED and pod.runs_function:
        return Diagnosis("disrupted", f"The pod was stopped from outside. {reason}")
    if code == EXIT_BAD_NODE and pod.runs_function:
        return Diagnosis(
            "bad-node", f"The accelerator of the node {pod.node} cannot be initialised. {reason}"
        )
    return explained(reason, text, WRITTEN, "exit")


def failed_init(pod: PodView) -> Diagnosis | None:
    """Return which init container of *pod* failed, unless it is a sidecar."""
    sidecars = {
        each["name"]
        for each in pod.spec.get("initContainers") or ()
        if each.get("restartPolicy") == "Always"
    }
    for init in pod.status.get("initContainerStatuses") or ():
        ended = (init.get("state") or {}).get("terminated") or {}
        if ended.get("exitCode") and init["name"] not in sidecars:
            return Diagnosis(
                "init",
                f"The init container {init['name']} failed with {exit_of(ended)}",
            )
    return None


def first_to_fail(pods: Sequence[PodView]) -> PodView | None:
    """Return the host that ended first of those that failed.

    A host that was told to stop is not the cause if another one failed. JAX aborts a host that loses another
    one, so a host that aborted comes after those that ended at about the same time. A host that the cluster
    ended counts from the moment at which that was decided: its grace period follows.
    """
    failed = [pod for pod in pods if ending_of(pod) is not None]
    own = [pod for pod in failed if not was_stopped(pod)] or failed
    if not own:
        return None
    first = min(map(_began_to_end, own))
    together = [pod for pod in own if _began_to_end(pod) - first <= _AT_ONCE]
    return min(together, key=lambda pod: (_aborted(pod), _began_to_end(pod), pod.host))


def _aborted(pod: PodView) -> bool:
    return pod.ends.get("exitCode") == _ABORTED and not pod.disruption


def _began_to_end(pod: PodView) -> datetime:
    """Return when the pod's container ended, or when its disruption was decided before that.

    Times are whole seconds: of the node's clock, or of the one that disrupts.
    """
    found = [pod.ends.get("finishedAt")]
    if pod.disruption:
        found.append(pod.condition("DisruptionTarget").get("lastTransitionTime"))
    return min((datetime.fromisoformat(each) for each in found if each), default=_UNKNOWN)


def was_stopped(pod: PodView) -> bool:
    """Return whether *pod* ended only because it was told to, and not because of its own memory or disk."""
    return (
        pod.ends.get("exitCode") in _STOPPED
        and pod.ends.get("reason") != "OOMKilled"
        and pod.status.get("reason") != "Evicted"
        and not pod.disruption
    )


def exit_of(terminated: Mapping[str, Any]) -> str:
    """Return how a container ended: its exit code, its signal, and the last line that it wrote."""
    code = int(terminated.get("exitCode") or 0)
    signal = _SIGNALS.get(code - 128)
    how = f"exit code {code}{f' ({signal})' if signal else ''}"
    lines = str(terminated.get("message") or "").strip().splitlines()
    # With an end marker, the runner has reported; it tells nothing to people.
    text = next((line for line in reversed(lines) if not line.startswith(END_MARKER)), "")
    return f"{how}{f': {text}' if text else '.'}"


def failed_of(workload: WorkloadView, hosts: Sequence[PodView]) -> Diagnosis | None:
    """Return why a job has failed whose *workload* has the condition."""
    reason = str(workload.failure.get("reason") or "")
    message = str(workload.failure.get("message") or reason or "no details")
    if reason == "DeadlineExceeded":
        return Diagnosis("deadline", f"The job did not end in time: {message}.")
    first = first_to_fail(hosts)
    if first is None:
        if reason in ("PodFailurePolicy", "FailJobSetFailurePolicyAction"):
            return Diagnosis("exit", f"The job failed: {message}.")
        if any(pod.alive or not pod.terminated for pod in hosts):
            return None
        # Pods are also removed after their end: with their node, or once the cluster keeps many.
        whose = "The job's pod" if workload.hosts == 1 else "A pod of the job"
        return Diagnosis(
            "pod-gone",
            f"{whose} was deleted, perhaps with its node or after its end: {message}.",
        )
    # If the pod of another host is gone, that one may have ended first. With its job, all are deleted together.
    alone = len(hosts) == workload.hosts and not workload.leaving
    if was_stopped(first) and first.leaving and alone:
        whose = "The job's pod" if workload.hosts == 1 else f"The pod of host {first.host}"
        return Diagnosis(
            "pod-deleted", f"{whose} was deleted, by a person or a program: {message}."
        )
    return first_ending(workload, hosts)


def first_ending(workload: WorkloadView, hosts: Sequence[PodView]) -> Diagnosis | None:
    """Return how the host ended that ended first, unless none has failed."""
    if all(pod.alive for pod in hosts):
        return None
    # The grace period of a host that the cluster ends may last longer than the hosts that lose it.
    first = first_to_fail([pod for pod in hosts if not pod.alive or pod.disruption])
    if first is None or (why := ending_of(first)) is None:
        return None
    if workload.hosts == 1:
        return why
    missing = sorted(set(range(workload.hosts)) - {pod.host for pod in hosts})
    reason = f"Host {first.host}: {why.reason}"
    if missing and (was_stopped(first) or _aborted(first)):
        # While a Job fails, Kubernetes deletes pods that it still takes for active, even the first to end.
        pods, are = ("pods", "are gone: they") if len(missing) > 1 else ("pod", "is gone: it")
        reason = f"{reason.rstrip('.')}. The {pods} of {named(missing)} {are} may have ended first."
    return Diagnosis(why.cause, reason, why.remedy)
