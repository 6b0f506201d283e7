"""`batch/v1` Jobs: one host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kinetic_k8s.manifests import Manifest
from kinetic_k8s.manifests.names import check_job_name
from kinetic_k8s.manifests.pod import pod_template
from kinetic_k8s.manifests.spec import (
    IGNORE_DISRUPTIONS,
    Kind,
    WorkloadSpec,
    metadata_of,
    on_exit_codes,
)


@dataclass(frozen=True, kw_only=True)
class JobSpec(WorkloadSpec):
    """A job on one host."""

    kind: ClassVar[Kind] = "Job"


def job_manifest(job: JobSpec) -> Manifest:
    """Render *job* as a Job that runs until it succeeds or has used up its retries.

    Raises:
        InvalidRequestError: The name or a label is not valid.
    """
    check_job_name(job.name)
    rules = [
        IGNORE_DISRUPTIONS,
        *on_exit_codes("FailJob", job.fatal_exit_codes),
        *on_exit_codes("Ignore", job.uncounted_exit_codes),
    ]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata_of(job),
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
