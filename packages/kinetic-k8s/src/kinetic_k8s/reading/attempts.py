"""Attempts of a job as its pods show them: waiting, running, or how they ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kinetic_k8s.manifests import Manifest
from kinetic_k8s.manifests.labels import HOST_ROLE, ROLE
from kinetic_k8s.manifests.names import CONTAINER

_INDEX = "batch.kubernetes.io/job-completion-index"
_LWS_INDEX = "leaderworkerset.sigs.k8s.io/worker-index"
_RESTARTS = "jobset.sigs.k8s.io/restart-attempt"
_ENDED = ("Succeeded", "Failed")
_MANY: Final = 4
"""The longest enumeration of hosts in a message."""
NEVER_STARTED: Final = ("StartError", "ContainerCannotRun")
"""Reasons of the end of a container whose program could not be started."""
LOST_CONTAINER: Final = "ContainerStatusUnknown"
"""The kubelet's reason if it does not find the container of a pod. Its exit code is then always 137."""


_STARTING: Final = frozenset(
    ("", "ContainerCreating", "PodInitializing", "CreateContainerConfigError")
)
"""Reasons of a container that waits as usual; a pod may start a moment before its Secret is created."""
_PAUSES: Final = {"ImagePullBackOff": "ErrImagePull"}
"""Reasons during the pause after an error → the reason during the error."""


@dataclass(frozen=True)
class PodView:
    """The state of one pod, from its manifest."""

    manifest: Manifest

    @property
    def name(self) -> str:
        """The pod's name."""
        return str(self.manifest["metadata"]["name"])

    @property
    def uid(self) -> str:
        """The uid, which differs from that of another pod of the same name."""
        return str(self.manifest["metadata"].get("uid", ""))

    @property
    def created(self) -> str:
        """When the pod was created, in a form that sorts."""
        return str(self.manifest["metadata"].get("creationTimestamp") or "")

    @property
    def labels(self) -> Mapping[str, str]:
        """The pod's labels."""
        return self.manifest["metadata"].get("labels") or {}

    @property
    def role(self) -> str:
        """What the pod does for its job: `host`, or the name of a component of Pathways."""
        return self.labels.get(ROLE) or HOST_ROLE

    @property
    def runs_function(self) -> bool:
        """Whether the pod is a host that runs the function, and not a component of Pathways."""
        return self.role == HOST_ROLE

    @property
    def host(self) -> int:
        """The index of the host; 0 for the leader, and for a job on one host."""
        return int(self.labels.get(_INDEX) or self.labels.get(_LWS_INDEX) or 0)

    @property
    def restarts(self) -> int | None:
        """How many times all hosts had been restarted before this pod; None outside of a JobSet."""
        text = self.labels.get(_RESTARTS)
        return None if text is None else int(text)

    @property
    def status(self) -> Mapping[str, Any]:
        """The pod's status; empty until the cluster sets it."""
        return self.manifest.get("status") or {}

    @property
    def phase(self) -> str:
        """`Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`."""
        return str(self.status.get("phase") or "Pending")

    @property
    def spec(self) -> Mapping[str, Any]:
        """The pod's spec."""
        return self.manifest.get("spec") or {}

    @property
    def container_spec(self) -> Mapping[str, Any]:
        """The container that runs the command, as it was requested."""
        return self._main(self.spec.get("containers"))

    @property
    def container(self) -> Mapping[str, Any]:
        """The status of the container that runs the command."""
        return self._main(self.status.get("containerStatuses"))

    def _main(self, containers: Sequence[Mapping[str, Any]] | None) -> Mapping[str, Any]:
        """Return our container. Others may stand before it; a component of Pathways has no other."""
        found = containers or ()
        ours = next((each for each in found if each.get("name") == CONTAINER), {})
        return ours or ({} if self.runs_function or not found else found[0])

    @property
    def waiting(self) -> Mapping[str, Any]:
        """Why the command's container does not run yet; empty once it has started."""
        return (self.container.get("state") or {}).get("waiting") or {}

    @property
    def obstacles(self) -> frozenset[str]:
        """The kubelet's reasons why containers cannot start, such as `ErrImagePull`; empty while they start."""
        statuses = [
            *(self.status.get("initContainerStatuses") or ()),
            *(self.status.get("containerStatuses") or ()),
        ]
        reasons = {
            str(((each.get("state") or {}).get("waiting") or {}).get("reason") or "")
            for each in statuses
        }
        return frozenset(_PAUSES.get(each, each) for each in reasons - _STARTING)

    @property
    def terminated(self) -> Mapping[str, Any]:
        """How the command's container ended; empty before its end."""
        return (self.container.get("state") or {}).get("terminated") or {}

    @property
    def started(self) -> bool:
        """Whether the command has started, now or before its container was restarted."""
        ended = self.terminated or self.last_terminated
        if ended:
            # A container that was still waiting when its pod was deleted is given an end, too; it has no id.
            never = ended.get("reason") == LOST_CONTAINER and not self.container.get("containerID")
            return not never and ended.get("reason") not in NEVER_STARTED
        # A pod may end without having started: an init container failed, or the node rejected the pod.
        return "running" in (self.container.get("state") or {})

    @property
    def last_terminated(self) -> Mapping[str, Any]:
        """How the command's container ended before it was restarted; empty if it was not."""
        return (self.container.get("lastState") or {}).get("terminated") or {}

    @property
    def ends(self) -> Mapping[str, Any]:
        """How the command's container ended last, even if it was restarted since."""
        return self.terminated or self.last_terminated

    @property
    def alive(self) -> bool:
        """Whether the command is running, or may still start or be restarted."""
        if self.phase in _ENDED:
            return False
        policy = self.spec.get("restartPolicy")
        again = policy == "Always" or (policy == "OnFailure" and self.terminated.get("exitCode"))
        return not self.terminated or bool(again)

    @property
    def leaving(self) -> bool:
        """Whether the pod is being deleted."""
        return "deletionTimestamp" in self.manifest["metadata"]

    @property
    def node(self) -> str:
        """The name of the pod's node; empty until one was found."""
        return str(self.spec.get("nodeName") or "")

    @property
    def gated(self) -> bool:
        """Whether something, such as a queue, keeps the scheduler from looking for a node."""
        return self.condition("PodScheduled").get("reason") == "SchedulingGated"

    @property
    def unschedulable(self) -> bool:
        """Whether the scheduler has found no node for the pod so far."""
        found = self.condition("PodScheduled")
        return self.alive and found.get("reason") == "Unschedulable"

    def condition(self, kind: str) -> Mapping[str, Any]:
        """Return the pod's condition of type *kind*, whatever its status; empty if there is none."""
        return condition(self.manifest, kind)

    @property
    def disruption(self) -> str:
        """The cluster's reason for ending the pod; empty if the cluster did not end it."""
        found = self.condition("DisruptionTarget")
        if found.get("status") != "True":
            return ""
        return str(found.get("message") or found.get("reason") or "disrupted")


def views(pods: Iterable[Manifest]) -> list[PodView]:
    """Return views of *pods*, oldest first. A job on one host has one pod for each attempt."""
    return sorted(map(PodView, pods), key=lambda pod: (pod.created, pod.name))


def hosts_of(pods: Iterable[PodView]) -> list[PodView]:
    """Return the newest pod of each host that runs the function, by host.

    In a JobSet, only those of the last restart: the pods of an earlier one do not run again.
    """
    hosts = [pod for pod in pods if pod.runs_function]
    restarts = max((pod.restarts or 0 for pod in hosts), default=0)
    newest = {
        pod.host: pod
        for pod in sorted(hosts, key=lambda pod: (pod.created, pod.name))
        if (pod.restarts or 0) == restarts
    }
    return [newest[host] for host in sorted(newest)]


def named(hosts: Sequence[int]) -> str:
    """Return the hosts in words: `host 2`, `hosts 0 and 3`, `hosts 1, 2 and 7 others`."""
    numbers = [str(host) for host in hosts]
    if len(numbers) > _MANY:
        numbers = [*numbers[: _MANY - 1], f"{len(numbers) - _MANY + 1} others"]
    together = ", ".join(numbers[:-1]) + " and " * (len(numbers) > 1) + numbers[-1]
    return f"host{'s' * (len(hosts) > 1)} {together}"


def condition(manifest: Manifest, kind: str) -> Mapping[str, Any]:
    """Return the object's condition of type *kind*, whatever its status; empty if there is none."""
    conditions: Sequence[Mapping[str, Any]] = (manifest.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each.get("type") == kind), {})


def is_true(manifest: Manifest, kind: str) -> bool:
    """Return whether the object's condition of type *kind* is true."""
    return condition(manifest, kind).get("status") == "True"
