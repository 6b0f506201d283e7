"""`batch/v1` Jobs: one host."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from kinetic_k8s.manifests import Manifest
from kinetic_k8s.manifests.names import CONTAINER, check_job_name
from kinetic_k8s.manifests.pod import PodSpec, pod_annotations, pod_labels, pod_template

IGNORE_DISRUPTIONS: Final[Manifest] = {
    "action": "Ignore",
    "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
}
"""The rule for preempted pods: they are replaced without using up a retry."""


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """A run on one host, in Kubernetes terms."""

    name: str
    pod: PodSpec
    retries: int = 0
    """The maximum number of failed pods that are replaced."""
    fatal_exit_codes: tuple[int, ...] = (2,)
    """Exit codes after which no retry is made."""
    keep_for: timedelta = timedelta(days=7)
    """How long the Job, its pods and their logs are kept after its end if nothing else removes them."""
    suspended: bool = False
    """Start no pod until `spec.suspend` is set to false."""


def job_manifest(job: JobSpec) -> Manifest:
    """Render *job* as a Job that runs until it succeeds or has used up its retries.

    The manifest names no namespace: the cluster that creates the Job adds its own.

    Raises:
        InvalidRequestError: The name or a label is not valid.
    """
    check_job_name(job.name)
    metadata: Manifest = {"name": job.name, "labels": pod_labels(job.pod)}
    if annotations := pod_annotations(job.pod):
        metadata["annotations"] = annotations
    rules = [IGNORE_DISRUPTIONS]
    if job.fatal_exit_codes:
        rules.append(fail_on_exit_codes(job.fatal_exit_codes))
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {
            "backoffLimit": job.retries,
            "podFailurePolicy": {"rules": rules},
            # There are never two live pods: they would write to the same places.
            "podReplacementPolicy": "Failed",
            "ttlSecondsAfterFinished": int(job.keep_for.total_seconds()),
            **({"suspend": True} if job.suspended else {}),
            "template": pod_template(job.pod),
        },
    }


def fail_on_exit_codes(codes: tuple[int, ...]) -> Manifest:
    """Render the rule that ends a Job when its container exits with one of *codes*."""
    return {
        "action": "FailJob",
        "onExitCodes": {
            "containerName": CONTAINER,
            "operator": "In",
            "values": sorted(codes),
        },
    }
