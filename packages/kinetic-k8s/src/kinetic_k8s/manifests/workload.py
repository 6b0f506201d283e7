"""The kind of workload that runs a job, and its manifest."""

from __future__ import annotations

from typing import Literal

from kinetic_k8s.accelerators.types import Accelerator, describe
from kinetic_k8s.errors import UnsupportedWorkloadError
from kinetic_k8s.manifests import Manifest
from kinetic_k8s.manifests.job import JobSpec, job_manifest
from kinetic_k8s.manifests.jobset import JobSetSpec, jobset_manifest
from kinetic_k8s.manifests.spec import WorkloadSpec

Kind = Literal["Job", "JobSet", "LeaderWorkerSet"]

KINDS: tuple[Kind, ...] = ("Job", "JobSet", "LeaderWorkerSet")
"""The kinds of Kubernetes objects that can run a job."""


def workload_manifest(spec: WorkloadSpec) -> Manifest:
    """Render *spec* as the workload of its class.

    Raises:
        InvalidRequestError: The name or a label is not valid.
    """
    match spec:
        case JobSpec():
            return job_manifest(spec)
        case JobSetSpec():
            return jobset_manifest(spec)
    raise TypeError(f"There is no workload for {type(spec).__name__}.")


def kind_of_workload(spec: WorkloadSpec) -> Kind:
    """Return the kind of the object that `workload_manifest` renders."""
    match spec:
        case JobSpec():
            return "Job"
        case JobSetSpec():
            return "JobSet"
    raise TypeError(f"There is no workload for {type(spec).__name__}.")


def form_of(accelerator: Accelerator) -> Literal["job"]:
    """Return the kind of workload for a job on *accelerator*.

    Raises:
        UnsupportedWorkloadError: The accelerator has several hosts.
    """
    if accelerator.multi_host:
        raise UnsupportedWorkloadError(
            f"{describe(accelerator)}: jobs on several hosts are not supported on Kubernetes yet.",
            hint="Use a slice that fits on one host; `kinetic accelerators` lists them.",
        )
    return "job"
