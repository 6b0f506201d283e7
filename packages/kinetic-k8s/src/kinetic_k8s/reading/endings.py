"""How a pod ended, and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from kinetic_k8s.quantity import parse_quantity
from kinetic_k8s.reading.attempts import LOST_CONTAINER, NEVER_STARTED, PodView, named
from kinetic_k8s.reading.causes import Diagnosis
from kinetic_payload.layout import END_MARKER, EXIT_BAD_NODE
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
_EXECUTABLE: Final = re.compile(r'exec: "([^"]+)": (?:executable file not found|stat )')
_REQUIREMENT: Final = re.compile(
    r"(cloudpickle|google-cloud-storage) is not installed|No module named '(cloudpickle)'"
)
"""What the runner, or Python itself, writes if an image lacks what the runner needs."""
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
    if pod.status.get("reason") == "Evicted":
        return _evicted(str(pod.status.get("message") or "no details").strip())
    if (failed := failed_init(pod)) is not None:
        return failed
    ended = pod.ends
    if pod.phase == "Failed" and not ended:
        return _never_ran(pod)
    code = ended.get("exitCode")
    if not code:
        return _failed_beside(pod) if pod.phase == "Failed" else None
    # If a child of the command ran out of memory, the exit code is the command's own, even 0.
    if ended.get("reason") == "OOMKilled":
        return _out_of_memory(pod)
    if ended.get("reason") == LOST_CONTAINER:
        return Diagnosis(
            "container-lost",
            f"The node {pod.node} does not know how the container ended, as after a restart of the node: "
            f"{LOST_CONTAINER}, {exit_of(ended)}",
        )
    if ended.get("reason") in NEVER_STARTED:
        return no_program(str(ended.get("message") or ""))
    reason = f"The container ended with {exit_of(ended)}"
    if code == EXIT_BAD_NODE and pod.runs_function:
        return Diagnosis(
            "bad-node", f"The accelerator of the node {pod.node} cannot be initialised. {reason}"
        )
    for line in str(ended.get("message") or "").splitlines():
        if missing := _REQUIREMENT.search(line):
            what = next(filter(None, missing.groups()))
            return Diagnosis(
                "image-requirements",
                f"The container ended with exit code {code}: {line}",
                f"Install {what} in the image.",
            )
    return Diagnosis("exit", reason)


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


def _never_ran(pod: PodView) -> Diagnosis:
    """Return why *pod* has failed without its container having started."""
    if message := pod.status.get("message"):
        return Diagnosis("rejected", f"The node {pod.node} did not run the pod: {message}")
    if pod.leaving:
        return Diagnosis("pod-deleted", "The pod was deleted before its container started.")
    return Diagnosis("never-started", "The pod failed before its container started.")


def _failed_beside(pod: PodView) -> Diagnosis | None:
    """Return which further container of *pod* failed, although that of the command did not."""
    for each in pod.status.get("containerStatuses") or ():
        ended = (each.get("state") or {}).get("terminated") or {}
        if ended.get("exitCode"):
            return Diagnosis(
                "other-container", f"The container {each['name']} ended with {exit_of(ended)}"
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


def may_follow(pod: PodView) -> bool:
    """Return whether *pod* may have ended only because another host had."""
    return was_stopped(pod) or _aborted(pod)


def gone(missing: Sequence[int]) -> str:
    """Return the sentence about hosts whose pods do not exist any more.

    While a Job fails, Kubernetes deletes pods that it still takes for active, even the first to end.
    """
    pods = "pods" if len(missing) > 1 else "pod"
    verb, they = ("are", "they") if len(missing) > 1 else ("is", "it")
    return f"The {pods} of {named(missing)} {verb} gone: {they} may have ended first."


def exit_of(terminated: Mapping[str, Any]) -> str:
    """Return how a container ended: its exit code, its signal, and the last line that it wrote."""
    code = int(terminated.get("exitCode") or 0)
    signal = _SIGNALS.get(code - 128)
    how = f"exit code {code}{f' ({signal})' if signal else ''}"
    text = _last_line(terminated)
    return f"{how}{f': {text}' if text else '.'}"


def no_program(message: str) -> Diagnosis:
    """Return why the program of a container could not be started."""
    if found := _EXECUTABLE.search(message):
        return Diagnosis(
            "no-program",
            f"The image has no program {found[1]!r}: {message}",
            f"Use an image that has {found[1]} on its PATH."
            if "/" not in found[1]
            else f"Use an image that has {found[1]}.",
        )
    if "exec format error" in message:
        return Diagnosis(
            "architecture",
            f"The image is for another architecture than the machine: {message}",
            "Build the image for the machine's architecture as well.",
        )
    return Diagnosis("start", f"The container could not start: {message}")


def _evicted(text: str) -> Diagnosis:
    reason = f"The node evicted the pod: {text}"
    if 'EmptyDir volume "shared-memory"' in text:
        return Diagnosis(
            "evicted", reason, "Use less shared memory, or set a larger shared_memory=."
        )
    if "low on resource: memory" in text:
        return Diagnosis("evicted", reason, "Request the memory that the job needs: set memory=.")
    if re.search(r"storage|EmptyDir|disk|inodes", text):
        return Diagnosis(
            "evicted", reason, "Write less to the local disk: large files belong in a bucket."
        )
    return Diagnosis("evicted", reason)


def _out_of_memory(pod: PodView) -> Diagnosis:
    """Return that a process of *pod* was killed; the whole container had then used all of its limit.

    If only a process of the function was killed, the runner reports the peak of what the container used.
    """
    limit = pod.container_spec.get("resources", {}).get("limits", {}).get("memory")
    others = pod.ends.get("exitCode") != _KILLED
    ended = f" The container ended with {exit_of(pod.ends)}" if others else ""
    if limit is None:
        return Diagnosis(
            "out-of-memory",
            f"A process was killed because the node ran out of memory.{ended}",
            "Request what the job needs: memory=",
        )
    return Diagnosis(
        "out-of-memory",
        f"A process was killed: the container used more than its limit of {limit} of memory.{ended}",
        f"Use less memory, or try memory={memory_to_try(int(parse_quantity(limit) or 0))!r}.",
    )


def _last_line(terminated: Mapping[str, Any]) -> str:
    lines = str(terminated.get("message") or "").strip().splitlines()
    # With an end marker, the runner has reported; it tells nothing to people.
    return next((line for line in reversed(lines) if not line.startswith(END_MARKER)), "")
