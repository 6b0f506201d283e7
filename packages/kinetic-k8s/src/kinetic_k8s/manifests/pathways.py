"""Pathways: a head that runs the function, and the workers of one slice; as a JobSet, or as a LeaderWorkerSet."""

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
from kinetic_k8s.manifests.jobset import HOSTS, JobSetSpec, host_rules, jobset, replicated_job
from kinetic_k8s.manifests.labels import APP, NODE_POOL, PATHWAYS_VALUE
from kinetic_k8s.manifests.spec import (
    FAIL_ON_DISRUPTIONS,
    Kind,
    WorkloadSpec,
    indexed_job,
    metadata_of,
)

HEAD: Final = "pathways-head"
"""The replicated Job of the head."""
LWS_API: Final = "leaderworkerset.x-k8s.io/v1"
_LABELS: Final = "metadata.labels['jobset.sigs.k8s.io/{}']"
_CRASHES_PER_WORKER: Final = 4
_EXCLUSIVE: Final = "leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology"
_WORKERS: Final = {"subGroupPolicyType": "LeaderExcluded"}


@dataclass(frozen=True, kw_only=True)
class PathwaysSpec(JobSetSpec):
    """A job whose function runs once, on the head, and sees all chips of the slice."""

    components: PathwaysComponents

    def manifest(self) -> Manifest:
        """Render a JobSet of head and workers, in the form that Google documents.

        The job ends with the head. A disruption of the head or of a worker restarts all of it without using up a
        retry; for that, workers are never restarted in place, as they are in Google's form.

        Raises:
            UnsupportedWorkloadError: Pathways does not support the accelerator.
        """
        hosts = self.pod.accelerator.hosts
        metadata = metadata_of(self)
        labels = metadata["labels"]
        labels[APP] = PATHWAYS_VALUE
        coordinator = _field("coordinator")
        variables = _variables(
            coordinator, slices=_field("replicatedjob-replicas"), slice_id=_field("job-index")
        )
        head = head_template(self.pod, self.components, coordinator)
        worker = worker_template(self.pod, self.components, variables)
        crashes = hosts * _CRASHES_PER_WORKER
        jobs = [
            replicated_job(
                HEAD,
                labels,
                indexed_job(head, 1, rules=host_rules(self)),
                self.components.head_topology,
            ),
            replicated_job(
                HOSTS,
                labels,
                indexed_job(worker, hosts, rules=[FAIL_ON_DISRUPTIONS], backoff=crashes),
                # A slice on one host takes all chips of its machine anyway.
                self.topology if hosts > 1 else None,
            ),
        ]
        return jobset(
            self,
            metadata,
            jobs,
            coordinator={"replicatedJob": HEAD},
            startupPolicy={"startupPolicyOrder": "InOrder"},
        )


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

    def manifest(self) -> Manifest:
        """Render a LeaderWorkerSet with one group. If it is suspended, it has no group yet.

        Raises:
            UnsupportedWorkloadError: Pathways does not support the accelerator.
        """
        metadata = metadata_of(self)
        metadata["labels"][APP] = PATHWAYS_VALUE
        hosts = self.pod.accelerator.hosts
        # A slice on one host takes all chips of its machine anyway.
        exclusive = hosts > 1 and self.topology is not None
        if exclusive:
            metadata.setdefault("annotations", {})[_EXCLUSIVE] = self.topology
        leader = {"value": f"{self.name}-0.{self.name}"}
        variables = _variables(leader, slices={"value": "1"}, slice_id={"value": "0"})
        return {
            "apiVersion": LWS_API,
            "kind": "LeaderWorkerSet",
            "metadata": metadata,
            "spec": {
                "replicas": 0 if self.suspended else 1,
                # The workers start when the leader is ready, as they do in the form of a JobSet.
                "startupPolicy": "LeaderReady",
                "leaderWorkerTemplate": {
                    "size": 1 + hosts,
                    **({"subGroupPolicy": _WORKERS | {"subGroupSize": hosts}} if exclusive else {}),
                    "restartPolicy": "RecreateGroupOnPodRestart",
                    "leaderTemplate": head_template(self.pod, self.components, leader, "Always"),
                    "workerTemplate": worker_template(
                        self.pod, self.components, variables, "Always"
                    ),
                },
            },
        }


def _variables(head: Manifest, *, slices: Manifest, slice_id: Manifest) -> list[Manifest]:
    """Render the variables of a worker; each value is the entry of `env` without its name."""
    return [
        {"name": HEAD_VARIABLE, **head},
        {"name": "MEGASCALE_COORDINATOR_ADDRESS", **head},
        {"name": "MEGASCALE_NUM_SLICES", **slices},
        {"name": "MEGASCALE_SLICE_ID", **slice_id},
    ]


def _field(name: str) -> Manifest:
    return {"valueFrom": {"fieldRef": {"fieldPath": _LABELS.format(name)}}}
