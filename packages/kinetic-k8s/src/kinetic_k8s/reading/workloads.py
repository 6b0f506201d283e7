"""Workloads of any kind: their hosts, their restarts, and whether they have ended."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kinetic_k8s.manifests import Manifest
from kinetic_k8s.manifests.labels import HELD, HOST_ROLE, ROLE
from kinetic_k8s.reading.attempts import condition, is_true

_FIRST_FAILED: Final = re.compile(r"first failed job: ([^)\s]+)")
"""What JobSet writes into its condition, with the name of the child Job."""


@dataclass(frozen=True)
class PodGroup:
    """Pods that one controller creates."""

    kind: str
    """The kind of the controller: `Job` or `StatefulSet`."""
    name: str
    pods: int
    runs_function: bool


@dataclass(frozen=True)
class WorkloadView:
    """The state of a Job, a JobSet or a LeaderWorkerSet, from its manifest."""

    manifest: Manifest

    @property
    def kind(self) -> str:
        """`Job`, `JobSet` or `LeaderWorkerSet`. The items of a list do not name their kind; their spec shows it."""
        if "replicatedJobs" in self._spec:
            return "JobSet"
        return "LeaderWorkerSet" if "leaderWorkerTemplate" in self._spec else "Job"

    @property
    def name(self) -> str:
        """The object's name."""
        return str(self.manifest["metadata"].get("name", ""))

    @property
    def uid(self) -> str:
        """The object's uid."""
        return str(self.manifest["metadata"].get("uid", ""))

    @property
    def in_namespace(self) -> str:
        """The option of kubectl that names the object's namespace, after a space; empty if it is not known."""
        namespace = self.manifest["metadata"].get("namespace")
        return f" -n {namespace}" if namespace else ""

    @property
    def labels(self) -> Mapping[str, str]:
        """The object's labels."""
        return self.manifest["metadata"].get("labels") or {}

    @property
    def hosts(self) -> int:
        """The number of pods that run the function: 1 under Pathways."""
        return sum(group.pods for group in self.groups if group.runs_function)

    @property
    def components(self) -> int:
        """The number of pods that do not run the function: the workers of Pathways."""
        return sum(group.pods for group in self.groups if not group.runs_function)

    @property
    def groups(self) -> tuple[PodGroup, ...]:
        """The groups of pods that are created by one controller each."""
        match self.kind:
            case "JobSet":
                return tuple(
                    PodGroup(
                        "Job",
                        f"{self.name}-{each['name']}-{index}",
                        _completions(job),
                        runs_function=_runs_function(job.get("template")),
                    )
                    for each in self._spec["replicatedJobs"]
                    for job in [each["template"]["spec"]]
                    for index in range(int(each.get("replicas", 1)))
                )
            case "LeaderWorkerSet":
                spec = self._spec["leaderWorkerTemplate"]
                worker = spec["workerTemplate"]
                leader = spec.get("leaderTemplate") or worker
                return tuple(
                    PodGroup("StatefulSet", name, pods, runs_function=_runs_function(template))
                    for name, pods, template in (
                        (self.name, 1, leader),
                        (f"{self.name}-0", int(spec.get("size", 1)) - 1, worker),
                    )
                )
        return (PodGroup("Job", self.name, _completions(self._spec), runs_function=True),)

    @property
    def suspended(self) -> bool:
        """Whether it is to have no pods for now. A LeaderWorkerSet has no replicas then."""
        return bool(self._spec.get("suspend")) or (
            self.kind == "LeaderWorkerSet" and self._spec.get("replicas") == 0
        )

    @property
    def leaving(self) -> bool:
        """Whether it is being deleted."""
        return "deletionTimestamp" in self.manifest["metadata"]

    @property
    def held(self) -> bool:
        """Whether it is suspended until its submit resumes it."""
        return self.suspended and HELD in (self.manifest["metadata"].get("annotations") or {})

    @property
    def restarts(self) -> int:
        """How many times a JobSet has restarted all of its hosts; 0 for other kinds."""
        return int(self._status.get("restarts") or 0)

    @property
    def succeeded(self) -> bool:
        """Whether it has certainly succeeded. A LeaderWorkerSet never does."""
        if self.kind == "JobSet":
            return (
                is_true(self.manifest, "Completed")
                or self._status.get("terminalState") == "Completed"
            )
        return is_true(self.manifest, "Complete") or is_true(self.manifest, "SuccessCriteriaMet")

    @property
    def failure(self) -> Mapping[str, Any]:
        """The condition by which it has certainly failed; empty if it has not."""
        for kind in ("Failed", "FailureTarget"):
            if is_true(self.manifest, kind):
                return condition(self.manifest, kind)
        failed = self._status.get("terminalState") == "Failed"
        return {"reason": "Failed"} if failed else {}

    @property
    def has_ended(self) -> bool:
        """Whether it has certainly succeeded or failed."""
        return self.succeeded or bool(self.failure)

    @property
    def has_begun(self) -> bool:
        """Whether a pod of a Job or a JobSet is known to have started."""
        counts = ("ready", "succeeded", "failed")
        found = [self._status, *(self._status.get("replicatedJobsStatus") or ())]
        ended = self._status.get("terminating") or self.restarts
        return bool(ended) or any(each.get(count) for each in found for count in counts)

    @property
    def failed_component(self) -> str:
        """The child Job by which a JobSet failed, if its pods do not run the function; otherwise empty."""
        failed = _FIRST_FAILED.search(str(self.failure.get("message") or ""))
        components = [group.name for group in self.groups if not group.runs_function]
        return failed[1] if failed and failed[1] in components else ""

    @property
    def controllers(self) -> frozenset[tuple[str, str]]:
        """Kind and name of each object whose events tell why a pod cannot be created."""
        created = {(group.kind, group.name) for group in self.groups}
        return frozenset(created | {(self.kind, self.name)})

    @property
    def _spec(self) -> Mapping[str, Any]:
        return self.manifest.get("spec") or {}

    @property
    def _status(self) -> Mapping[str, Any]:
        return self.manifest.get("status") or {}


def _completions(job: Mapping[str, Any]) -> int:
    """Return how many pods of a Job are to succeed."""
    return int(job.get("completions") or job.get("parallelism") or 1)


def _runs_function(template: Mapping[str, Any] | None) -> bool:
    labels = ((template or {}).get("metadata") or {}).get("labels") or {}
    return bool(labels.get(ROLE, HOST_ROLE) == HOST_ROLE)
