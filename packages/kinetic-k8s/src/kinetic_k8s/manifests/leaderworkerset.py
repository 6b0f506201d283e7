"""Pathways as a LeaderWorkerSet, for clusters that do not serve JobSets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from kinetic_k8s.manifests import Manifest
from kinetic_k8s.manifests.components import (
    HEAD_VARIABLE,
    PathwaysComponents,
    head_template,
    worker_template,
)
from kinetic_k8s.manifests.labels import APP, NODE_POOL, PATHWAYS_VALUE
from kinetic_k8s.manifests.names import check_pathways_name
from kinetic_k8s.manifests.spec import Kind, WorkloadSpec, metadata_of

API: Final = "leaderworkerset.x-k8s.io/v1"
_EXCLUSIVE: Final = "leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology"
_WORKERS: Final = {"subGroupPolicyType": "LeaderExcluded"}


@dataclass(frozen=True, kw_only=True)
class LeaderWorkerSetSpec(WorkloadSpec):
    """A job whose function runs once, on the leader, and sees all chips of the slice.

    A LeaderWorkerSet never ends: it starts its containers again, whatever their exit code. So the command
    must keep running after it has reported (`Flag.IDLE` of the runner), and whoever reads the report deletes
    the object. `retries`, `fatal_exit_codes`, `uncounted_exit_codes` and `keep_for` have no effect here: an
    exit of the command, and each disruption, restarts all pods.
    """

    kind: ClassVar[Kind] = "LeaderWorkerSet"
    components: PathwaysComponents
    topology: str | None = NODE_POOL
    """The label of nodes whose value all workers share, with no other group. None: they run on any nodes."""


def leaderworkerset_manifest(spec: LeaderWorkerSetSpec) -> Manifest:
    """Render *spec* as a LeaderWorkerSet with one group. If it is suspended, it has no group yet.

    Raises:
        InvalidRequestError: The name or a label is not valid.
        UnsupportedWorkloadError: Pathways does not support the accelerator.
    """
    check_pathways_name(spec.name)
    metadata = metadata_of(spec)
    metadata["labels"][APP] = PATHWAYS_VALUE
    hosts = spec.pod.accelerator.hosts
    # A slice on one host takes all chips of its machine anyway.
    exclusive = hosts > 1 and spec.topology is not None
    if exclusive:
        metadata.setdefault("annotations", {})[_EXCLUSIVE] = spec.topology
    leader = {"value": f"{spec.name}-0.{spec.name}"}
    variables = [
        {"name": HEAD_VARIABLE, **leader},
        {"name": "MEGASCALE_COORDINATOR_ADDRESS", **leader},
        {"name": "MEGASCALE_NUM_SLICES", "value": "1"},
        {"name": "MEGASCALE_SLICE_ID", "value": "0"},
    ]
    return {
        "apiVersion": API,
        "kind": "LeaderWorkerSet",
        "metadata": metadata,
        "spec": {
            "replicas": 0 if spec.suspended else 1,
            # The workers start when the leader is ready, as they do in the form of a JobSet.
            "startupPolicy": "LeaderReady",
            "leaderWorkerTemplate": {
                "size": 1 + hosts,
                **({"subGroupPolicy": _WORKERS | {"subGroupSize": hosts}} if exclusive else {}),
                "restartPolicy": "RecreateGroupOnPodRestart",
                "leaderTemplate": head_template(spec.pod, spec.components, leader, "Always"),
                "workerTemplate": worker_template(spec.pod, spec.components, variables, "Always"),
            },
        },
    }
