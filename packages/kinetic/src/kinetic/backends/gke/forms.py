"""The form of a job: how it becomes a workload of the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinetic.backends.registry import entry_of
from kinetic_k8s.accelerators import parse_accelerator
from kinetic_k8s.manifests.workload import KINDS, Form, form_of
from kinetic_payload.layout import is_group_id

if TYPE_CHECKING:
    from kinetic.backends.registry import Semantics
    from kinetic_k8s.accelerators import Accelerator
    from kinetic_k8s.cluster.client import ApiServer
    from kinetic_k8s.manifests.spec import Kind
    from kinetic_payload.records.job import JobRecord


def form_on(
    cluster: ApiServer, accelerator: Accelerator, semantics: Semantics, *, batch: bool = False
) -> Form:
    """Return the form of a job, or of a *batch*, on *cluster*, which is asked for what it serves.

    Raises:
        UnsupportedWorkloadError: Pathways does not support the accelerator, or the cluster serves no kind
            that can run it.
    """
    served = {kind for kind in ("JobSet", "LeaderWorkerSet") if cluster.serves(kind)}
    return form_of(accelerator, semantics, served, batch=batch)


def form_in(record: JobRecord) -> Form:
    """Return the form of the job that has *record*, by the kind of workload in it.

    Raises:
        UnsupportedWorkloadError: No job on its accelerator runs as that kind.
    """
    accelerator, batch = parse_accelerator(record.accelerator), is_group_id(record.job_id)
    return form_of(accelerator, semantics_of(record), {workload_of(record)}, batch=batch)


def workload_of(record: JobRecord) -> Kind:
    """Return the kind of the object that runs the job; a job of an earlier version is a Job."""
    found: dict[str | None, Kind] = {kind: kind for kind in KINDS}
    return found.get(record.workload, "Job")


def semantics_of(record: JobRecord) -> Semantics:
    """Return how the job that has *record* uses its accelerator."""
    return "pathways" if entry_of(record.backend).semantics == "pathways" else "gke"


def warnings_of(form: Form) -> tuple[str, ...]:
    """Return what the user should know about a job of this form."""
    if form != "indexed-job":
        return ()
    return (
        "The cluster does not serve JobSets, so this job runs as an Indexed Job: its hosts do not restart as "
        "a whole. The first host that fails or is preempted ends the job, whatever retries and preemptions "
        "say. Ask the cluster's administrator to install JobSet (https://jobset.sigs.k8s.io).",
    )
