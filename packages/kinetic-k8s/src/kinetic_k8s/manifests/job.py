"""`batch/v1` Jobs, on a cluster that serves no JobSet: one host, or several."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from kinetic_k8s.manifests import Manifest
from kinetic_k8s.manifests.components import with_hosts
from kinetic_k8s.manifests.labels import NODE_POOL
from kinetic_k8s.manifests.pod import pod_template
from kinetic_k8s.manifests.secrets import owner_reference
from kinetic_k8s.manifests.spec import (
    FAIL_ON_DISRUPTIONS,
    IGNORE_DISRUPTIONS,
    Kind,
    WorkloadSpec,
    indexed_job,
    lifetime_of,
    metadata_of,
    on_exit_codes,
)
from kinetic_payload.layout import Env
from kinetic_payload.records.retry import most_lost


@dataclass(frozen=True, kw_only=True)
class JobSpec(WorkloadSpec):
    """A job on one host, where the cluster serves no JobSet: it waits before each new pod, twice as long each time."""

    kind: ClassVar[Kind] = "Job"

    def manifest(self) -> Manifest:
        """Render a Job that runs until it succeeds or has used up its retries."""
        rules = [
            IGNORE_DISRUPTIONS,
            *on_exit_codes("FailJob", self.fatal_exit_codes),
            *on_exit_codes("Ignore", self.uncounted_exit_codes),
        ]
        spec = {
            "backoffLimit": self.retries,
            "podFailurePolicy": {"rules": rules},
            # There are never two live pods: they would write to the same places.
            "podReplacementPolicy": "Failed",
            **lifetime_of(self),
            "template": pod_template(self.pod),
        }
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": metadata_of(self),
            "spec": spec,
        }


@dataclass(frozen=True, kw_only=True)
class IndexedJobSpec(WorkloadSpec):
    """A job on several hosts, each of which runs the function, where the cluster serves no JobSet.

    A Job replaces single pods, and a replaced host could not join the others again. So the first host that
    fails or is preempted ends the job: `retries` and `uncounted_exit_codes` have no effect. Report this to
    the user.
    """

    kind: ClassVar[Kind] = "Job"

    def manifest(self) -> Manifest:
        """Render an Indexed Job whose pods are the hosts.

        The hosts find each other by the names of `host_service`, which must be created with it."""
        hosts = self.pod.accelerator.hosts
        names = tuple(f"{self.name}-{index}.{self.name}" for index in range(hosts))
        # There is only one attempt, and all hosts must know its number.
        pod = with_hosts(self.pod, names, variables={Env.RESTART_ATTEMPT: "0"})
        # On GKE, a node pool of several hosts is one slice.
        template = pod_template(replace(pod, subdomain=self.name, topology=NODE_POOL))
        final = on_exit_codes("FailJob", {*self.fatal_exit_codes, *self.uncounted_exit_codes})
        spec = indexed_job(template, hosts, rules=[FAIL_ON_DISRUPTIONS, *final]) | lifetime_of(self)
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": metadata_of(self),
            "spec": spec,
        }


@dataclass(frozen=True, kw_only=True)
class BatchSpec(WorkloadSpec):
    """The workers of a batch, each with one host: `retries` has no effect, because a worker repeats its inputs itself."""

    kind: ClassVar[Kind] = "Job"
    workers: tuple[int, ...]
    """Their numbers; each index of the Job is the place of one."""
    at_once: int
    """How many workers run at the same time."""
    per_worker: int
    """How many inputs each has."""

    def manifest(self) -> Manifest:
        """Render an Indexed Job whose indexes are the workers; a lost worker is started again."""
        rules = [
            IGNORE_DISRUPTIONS,
            *on_exit_codes("FailIndex", self.fatal_exit_codes),
            *on_exit_codes("Ignore", self.uncounted_exit_codes),
        ]
        variable = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
        fields = {**self.pod.field_variables, Env.BATCH_WORKER: variable}
        own = {**self.pod.environment, Env.BATCH_WORKERS: ",".join(map(str, self.workers))}
        if self.workers == tuple(range(len(self.workers))):
            del own[Env.BATCH_WORKERS]
        template = pod_template(replace(self.pod, field_variables=fields, environment=own))
        spec = indexed_job(template, len(self.workers), rules=rules) | lifetime_of(self)
        del spec["backoffLimit"]  # The limit of each index counts instead.
        spec |= {
            "parallelism": min(self.at_once, len(self.workers)),
            "backoffLimitPerIndex": most_lost(self.per_worker),
        }
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": metadata_of(self),
            "spec": spec,
        }


def host_service(job: Manifest) -> Manifest:
    """Render the headless Service that gives the pods of *job* their names in DNS, owned by *job*.

    *job* is the manifest that the server returned.
    """
    name = job["metadata"]["name"]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name,
            "labels": job["metadata"]["labels"],
            "ownerReferences": [owner_reference(job)],
        },
        "spec": {
            "clusterIP": "None",
            "selector": {"batch.kubernetes.io/job-name": name},
            # Hosts look for each other before they are ready.
            "publishNotReadyAddresses": True,
        },
    }
