"""`WorkloadSpec`: what all workloads have in common, whatever their kind."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar, Final, Literal

from kinetic_k8s.manifests import Manifest
from kinetic_k8s.manifests.names import CONTAINER
from kinetic_k8s.manifests.pod import PodSpec, pod_metadata
from kinetic_payload.layout import EXIT_BAD_NODE, EXIT_NOT_PREPARED, EXIT_TERMINATED

Kind = Literal["Job", "JobSet", "LeaderWorkerSet"]
"""The kind of the Kubernetes object that runs a job."""
_DISRUPTED: Final = {"type": "DisruptionTarget", "status": "True"}
IGNORE_DISRUPTIONS: Final[Manifest] = {"action": "Ignore", "onPodConditions": [_DISRUPTED]}
"""The rule for preempted pods: they are replaced without using up a retry."""
FAIL_ON_DISRUPTIONS: Final[Manifest] = {"action": "FailJob", "onPodConditions": [_DISRUPTED]}
"""The rule for preempted pods if all hosts must restart together."""


@dataclass(frozen=True, kw_only=True)
class WorkloadSpec:
    """A job in Kubernetes terms."""

    kind: ClassVar[Kind]
    name: str
    pod: PodSpec
    """One host of the job; all hosts are alike."""
    retries: int = 0
    """The maximum number of failures after which the job is run again."""
    fatal_exit_codes: tuple[int, ...] = (EXIT_NOT_PREPARED,)
    """Exit codes after which no retry is made."""
    uncounted_exit_codes: tuple[int, ...] = (EXIT_BAD_NODE, EXIT_TERMINATED)
    """Exit codes after which the job is run again without using up a retry, as after a disruption: a pod that is
    deleted has no condition that says so."""
    keep_for: timedelta = timedelta(days=7)
    """How long the workload, its pods and their logs are kept after its end if nothing else removes them."""
    suspended: bool = False
    """Start no pod until `spec.suspend` is set to false."""

    def manifest(self) -> Manifest:
        """Render the workload of this class.

        Raises:
            UnsupportedWorkloadError: Pathways does not support the accelerator.
        """
        raise NotImplementedError


def metadata_of(spec: WorkloadSpec) -> Manifest:
    """Return the metadata of the workload. It names no namespace: the cluster that creates it adds its own."""
    return {"name": spec.name, **pod_metadata(spec.pod)}


def on_exit_codes(
    action: Literal["FailIndex", "FailJob", "Ignore"], codes: Iterable[int]
) -> list[Manifest]:
    """Render the rule of a Job for the *codes* with which its container exits; no rule if there are none."""
    values = sorted(codes)
    rule = {"containerName": CONTAINER, "operator": "In", "values": values}
    return [{"action": action, "onExitCodes": rule}] if values else []


def lifetime_of(spec: WorkloadSpec) -> Manifest:
    """Render when the workload of *spec* starts, and how long it is kept."""
    kept = {"ttlSecondsAfterFinished": int(spec.keep_for.total_seconds())}
    return {**kept, "suspend": True} if spec.suspended else kept


def indexed_job(
    template: Manifest, pods: int, *, rules: list[Manifest], backoff: int = 0
) -> Manifest:
    """Render the spec of an Indexed Job with so many *pods* at once."""
    return {
        "completionMode": "Indexed",
        "completions": pods,
        "parallelism": pods,
        "backoffLimit": backoff,
        # There are never two live pods of one index: they would write to the same places.
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {"rules": rules},
        "template": template,
    }
