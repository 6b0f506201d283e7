"""JobSets: hosts that start, restart and end as one, without the pause before a Job replaces a pod."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from kinetic_k8s.manifests import Manifest
from kinetic_k8s.manifests.components import with_hosts
from kinetic_k8s.manifests.labels import NODE_POOL
from kinetic_k8s.manifests.pod import pod_template
from kinetic_k8s.manifests.spec import (
    FAIL_ON_DISRUPTIONS,
    Kind,
    WorkloadSpec,
    indexed_job,
    lifetime_of,
    metadata_of,
    on_exit_codes,
)
from kinetic_payload.layout import Env

API: Final = "jobset.x-k8s.io/v1alpha2"
HOSTS: Final = "worker"
"""The replicated Job whose pods are the hosts."""
EXCLUSIVE: Final = "alpha.jobset.sigs.k8s.io/exclusive-topology"
"""The annotation of a JobSet that places each of its Jobs in a topology domain of its own."""
MESSAGE_PATTERNS: Final = "onJobFailureMessagePatterns"
"""The field of a rule that older versions of JobSet lack."""
RESTARTS: Final = "metadata.annotations['jobset.sigs.k8s.io/restart-attempt']"
"""The field of a pod with the number of times that its JobSet was restarted."""


@dataclass(frozen=True, kw_only=True)
class JobSetSpec(WorkloadSpec):
    """A job on one host or several, each of which runs the function."""

    kind: ClassVar[Kind] = "JobSet"
    distinguishes_exit_codes: bool = True
    """Whether the cluster's JobSet has rules on the message of a failed Job (0.12 does). Without them, a fatal
    exit code would restart the hosts for ever, so it is treated like any other failure."""
    topology: str | None = NODE_POOL
    """The label of nodes whose value all hosts share, with no other JobSet. None: the hosts run on any nodes."""

    def manifest(self) -> Manifest:
        """Render a JobSet with one Indexed Job, whose pods are the hosts."""
        hosts = self.pod.accelerator.hosts
        names = tuple(f"{self.name}-{HOSTS}-0-{index}.{self.name}" for index in range(hosts))
        pod, metadata = self.pod, metadata_of(self)
        if hosts > 1:
            pod = with_hosts(pod, names, fields={Env.RESTART_ATTEMPT: RESTARTS})
            # On GKE, a node pool of several hosts is one slice.
            if self.topology is not None:
                metadata.setdefault("annotations", {})[EXCLUSIVE] = self.topology
        job = indexed_job(pod_template(pod), hosts, rules=host_rules(self))
        return jobset(self, metadata, [replicated_job(HOSTS, metadata["labels"], job)])


def jobset(
    spec: JobSetSpec, metadata: Manifest, jobs: Sequence[Manifest], **more: Manifest
) -> Manifest:
    """Render a JobSet of *jobs* that ends with the first one; *more* are fields of its spec."""
    return {
        "apiVersion": API,
        "kind": "JobSet",
        "metadata": metadata,
        "spec": {
            "replicatedJobs": list(jobs),
            "successPolicy": {"operator": "All", "targetReplicatedJobs": [jobs[0]["name"]]},
            "failurePolicy": _failure_policy(spec),
            "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
            **lifetime_of(spec),
            **more,
        },
    }


def replicated_job(
    name: str, labels: Mapping[str, str], job: Manifest, topology: str | None = None
) -> Manifest:
    """Render one of the Jobs of a JobSet, alone in its domain of *topology* if there is one."""
    metadata: Manifest = {"labels": labels}
    if topology is not None:
        metadata["annotations"] = {EXCLUSIVE: topology}
    return {"name": name, "replicas": 1, "template": {"metadata": metadata, "spec": job}}


def host_rules(spec: JobSetSpec) -> list[Manifest]:
    """Render the rules of the Job of the hosts; what they do to the JobSet is in `_failure_policy`."""
    fatal = spec.fatal_exit_codes if spec.distinguishes_exit_codes else ()
    codes = {*fatal, *spec.uncounted_exit_codes}
    return [FAIL_ON_DISRUPTIONS, *on_exit_codes("FailJob", codes)]


def _failure_policy(spec: JobSetSpec) -> Manifest:
    """Render what happens when a Job of the JobSet fails.

    To a JobSet, all rules of a Job have the same failure reason; the message names the exit code.
    """
    fatal = sorted(spec.fatal_exit_codes) if spec.distinguishes_exit_codes else []
    rule = {
        "name": "fatal",
        "action": "FailJobSet",
        "onJobFailureReasons": ["PodFailurePolicy"],
        MESSAGE_PATTERNS: [f".*exit code {code} .*" for code in fatal],
    }
    restart = {
        "name": "uncounted",
        "action": "RestartJobSetAndIgnoreMaxRestarts",
        "onJobFailureReasons": ["PodFailurePolicy"],
    }
    return {"maxRestarts": spec.retries, "rules": [*([rule] if fatal else []), restart]}
