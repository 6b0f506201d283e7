"""The kind of workload that runs a job."""

from __future__ import annotations

from collections.abc import Set
from typing import Final, Literal

from kinetic_k8s.accelerators.types import Accelerator, describe
from kinetic_k8s.errors import UnsupportedWorkloadError
from kinetic_k8s.manifests import Manifest
from kinetic_k8s.manifests.components import instance_type
from kinetic_k8s.manifests.job import BatchSpec, IndexedJobSpec, JobSpec
from kinetic_k8s.manifests.jobset import JobSetSpec
from kinetic_k8s.manifests.pathways import LeaderWorkerSetSpec, PathwaysSpec
from kinetic_k8s.manifests.spec import Kind, WorkloadSpec

Form = Literal["job", "indexed-job", "jobset", "pathways", "pathways-lws", "batch"]
"""How a job becomes a workload."""

KINDS: tuple[Kind, ...] = ("Job", "JobSet", "LeaderWorkerSet")
"""The kinds of Kubernetes objects that can run a job."""
SPEC_OF_FORM: Final[dict[Form, type[WorkloadSpec]]] = {
    "job": JobSpec,
    "indexed-job": IndexedJobSpec,
    "jobset": JobSetSpec,
    "pathways": PathwaysSpec,
    "pathways-lws": LeaderWorkerSetSpec,
    "batch": BatchSpec,
}


def form_of(
    accelerator: Accelerator,
    semantics: Literal["gke", "pathways"],
    served: Set[str],
    *,
    batch: bool = False,
) -> Form:
    """Return the form of a job on *accelerator*, or that of a batch.

    Args:
        accelerator: The job's accelerator, or that of each input.
        semantics: Under `gke`, every host runs the function; under `pathways`, one process sees all chips.
        served: Which of the kinds `JobSet` and `LeaderWorkerSet` the cluster serves.
        batch: Whether the function runs for many inputs. `batch` is then one workload for all of them; of any other
            form, each worker has its own.

    Raises:
        UnsupportedWorkloadError: Pathways does not support the accelerator, or the cluster serves no kind
            that can run it.
    """
    if batch and semantics == "gke" and not accelerator.multi_host:
        return "batch"
    if batch and "JobSet" not in served:
        raise UnsupportedWorkloadError(
            f"A batch on {describe(accelerator)} needs JobSets, and the cluster does not serve them.",
            hint="Ask the cluster's administrator to install JobSet (https://jobset.sigs.k8s.io), or submit the "
            "inputs one by one with run_async.",
        )
    if semantics == "gke":
        if "JobSet" in served:
            return "jobset"
        return "indexed-job" if accelerator.multi_host else "job"
    instance_type(accelerator)
    if "JobSet" in served:
        return "pathways"
    if "LeaderWorkerSet" in served:
        return "pathways-lws"
    raise UnsupportedWorkloadError(
        f"{describe(accelerator)}: Pathways needs JobSets or LeaderWorkerSets, and the cluster serves neither.",
        hint="Ask the cluster's administrator to install JobSet (https://jobset.sigs.k8s.io), or use "
        "backend='gke'.",
    )


def checked_job(workload: Manifest) -> Manifest | None:
    """Return a Job with the pod of *workload* that runs the function; None if *workload* is a Job.

    A dry run of it also checks that pod: for custom resources, the server checks only the names and types of
    their fields.
    """
    spec = workload["spec"]
    match workload["kind"]:
        case "JobSet":
            # The head of Pathways comes before the workers.
            template = spec["replicatedJobs"][0]["template"]["spec"]["template"]
        case "LeaderWorkerSet":
            template = spec["leaderWorkerTemplate"]["leaderTemplate"]
        case _:
            return None
    metadata = workload["metadata"]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": metadata["name"], "labels": metadata["labels"]},
        # Pods of a Job must end; those of a LeaderWorkerSet are started again.
        "spec": {"template": {**template, "spec": {**template["spec"], "restartPolicy": "Never"}}},
    }
