"""Pathways as a JobSet: a head that runs the function, and the workers of one slice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kinetic_k8s.manifests import Manifest
from kinetic_k8s.manifests.components import (
    HEAD_VARIABLE,
    PathwaysComponents,
    head_template,
    worker_template,
)
from kinetic_k8s.manifests.jobset import (
    API,
    EXCLUSIVE,
    HOSTS,
    JobSetSpec,
    failure_policy,
    host_rules,
)
from kinetic_k8s.manifests.labels import APP, PATHWAYS_VALUE
from kinetic_k8s.manifests.names import check_pathways_name
from kinetic_k8s.manifests.spec import FAIL_ON_DISRUPTIONS, metadata_of

HEAD: Final = "pathways-head"
"""The replicated Job of the head."""
_LABELS: Final = "metadata.labels['jobset.sigs.k8s.io/{}']"
_CRASHES_PER_WORKER: Final = 4


@dataclass(frozen=True, kw_only=True)
class PathwaysSpec(JobSetSpec):
    """A job whose function runs once, on the head, and sees all chips of the slice."""

    components: PathwaysComponents


def pathways_manifest(spec: PathwaysSpec) -> Manifest:
    """Render *spec* as a JobSet of head and workers, in the form that Google documents.

    The job ends with the head. A disruption of the head or of a worker restarts all of it without using up a
    retry; for that, workers are never restarted in place, as they are in Google's form.

    Raises:
        InvalidRequestError: The name or a label is not valid.
        UnsupportedWorkloadError: Pathways does not support the accelerator.
    """
    check_pathways_name(spec.name)
    hosts = spec.pod.accelerator.hosts
    metadata = metadata_of(spec)
    metadata["labels"][APP] = PATHWAYS_VALUE
    coordinator = _field("coordinator")
    head = head_template(spec.pod, spec.components, coordinator)
    worker = worker_template(
        spec.pod,
        spec.components,
        [
            {"name": HEAD_VARIABLE, **coordinator},
            {"name": "MEGASCALE_COORDINATOR_ADDRESS", **coordinator},
            {"name": "MEGASCALE_NUM_SLICES", **_field("replicatedjob-replicas")},
            {"name": "MEGASCALE_SLICE_ID", **_field("job-index")},
        ],
    )
    labels = metadata["labels"]
    return {
        "apiVersion": API,
        "kind": "JobSet",
        "metadata": metadata,
        "spec": {
            "coordinator": {"replicatedJob": HEAD},
            "startupPolicy": {"startupPolicyOrder": "InOrder"},
            "successPolicy": {"operator": "All", "targetReplicatedJobs": [HEAD]},
            "failurePolicy": failure_policy(spec),
            "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
            "ttlSecondsAfterFinished": int(spec.keep_for.total_seconds()),
            **({"suspend": True} if spec.suspended else {}),
            "replicatedJobs": [
                _replicated(
                    HEAD,
                    labels,
                    spec.components.head_topology,
                    _job(head, 1, backoff=0, rules=host_rules(spec)),
                ),
                _replicated(
                    HOSTS,
                    labels,
                    # A slice on one host takes all chips of its machine anyway.
                    spec.topology if hosts > 1 else None,
                    _job(
                        worker,
                        hosts,
                        backoff=hosts * _CRASHES_PER_WORKER,
                        rules=[FAIL_ON_DISRUPTIONS],
                    ),
                ),
            ],
        },
    }


def _replicated(name: str, labels: dict[str, str], topology: str | None, job: Manifest) -> Manifest:
    metadata: Manifest = {"labels": labels}
    if topology is not None:
        metadata["annotations"] = {EXCLUSIVE: topology}
    return {"name": name, "replicas": 1, "template": {"metadata": metadata, "spec": job}}


def _job(template: Manifest, pods: int, *, backoff: int, rules: list[Manifest]) -> Manifest:
    return {
        "completionMode": "Indexed",
        "completions": pods,
        "parallelism": pods,
        "backoffLimit": backoff,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {"rules": rules},
        "template": template,
    }


def _field(name: str) -> Manifest:
    return {"valueFrom": {"fieldRef": {"fieldPath": _LABELS.format(name)}}}
