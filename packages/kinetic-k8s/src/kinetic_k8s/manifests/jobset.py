"""JobSets: several hosts that start, restart and end as one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from kinetic_k8s.manifests import Manifest
from kinetic_k8s.manifests.names import check_host_names
from kinetic_k8s.manifests.pod import PodSpec, pod_template
from kinetic_k8s.manifests.spec import WorkloadSpec, fail_on_exit_codes, metadata_of
from kinetic_payload.layout import Env

API: Final = "jobset.x-k8s.io/v1alpha2"
HOSTS: Final = "worker"
"""The replicated Job whose pods are the hosts."""
COORDINATOR_PORT: Final = 8482
"""The default port of `jax.distributed`."""
_EXCLUSIVE: Final = "alpha.jobset.sigs.k8s.io/exclusive-topology"
_NODE_POOL: Final = "cloud.google.com/gke-nodepool"
_INDEX: Final = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
_RESTARTS: Final = "metadata.annotations['jobset.sigs.k8s.io/restart-attempt']"


@dataclass(frozen=True, kw_only=True)
class JobSetSpec(WorkloadSpec):
    """A job on several hosts, each of which runs the function."""

    distinguishes_exit_codes: bool = True
    """Whether the cluster's JobSet has rules on the message of a failed Job (0.12 does). Without them, a fatal
    exit code would restart the hosts for ever, so it is treated like any other failure."""


def jobset_manifest(spec: JobSetSpec) -> Manifest:
    """Render *spec* as a JobSet with one Indexed Job, whose pods are the hosts.

    Raises:
        InvalidRequestError: The name or a label is not valid.
    """
    hosts = spec.pod.accelerator.hosts
    check_host_names(host_names(spec.name, hosts))
    fatal = spec.fatal_exit_codes if spec.distinguishes_exit_codes else ()
    # To a JobSet, both rules of the Job have the same failure reason. The message names the exit code.
    rules = [
        {
            "name": "fatal",
            "action": "FailJobSet",
            "onJobFailureReasons": ["PodFailurePolicy"],
            "onJobFailureMessagePatterns": [f".*exit code {code} .*" for code in sorted(fatal)],
        }
    ] * bool(fatal)
    job = {
        "completionMode": "Indexed",
        "completions": hosts,
        "parallelism": hosts,
        "backoffLimit": 0,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {
            "rules": [
                {"action": "FailJob", "onPodConditions": [_DISRUPTED]},
                *([fail_on_exit_codes(fatal)] if fatal else []),
            ]
        },
        "template": pod_template(_host(spec.pod, spec.name)),
    }
    metadata = metadata_of(spec)
    # All hosts are in one node pool: on GKE, a node pool of several hosts is one slice.
    metadata.setdefault("annotations", {})[_EXCLUSIVE] = _NODE_POOL
    return {
        "apiVersion": API,
        "kind": "JobSet",
        "metadata": metadata,
        "spec": {
            "replicatedJobs": [
                {
                    "name": HOSTS,
                    "replicas": 1,
                    "template": {"metadata": {"labels": metadata["labels"]}, "spec": job},
                }
            ],
            "successPolicy": {"operator": "All", "targetReplicatedJobs": [HOSTS]},
            "failurePolicy": {
                "maxRestarts": spec.retries,
                "rules": [
                    *rules,
                    {
                        "name": "disrupted",
                        "action": "RestartJobSetAndIgnoreMaxRestarts",
                        "onJobFailureReasons": ["PodFailurePolicy"],
                    },
                ],
            },
            "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
            "ttlSecondsAfterFinished": int(spec.keep_for.total_seconds()),
            **({"suspend": True} if spec.suspended else {}),
        },
    }


def host_names(name: str, hosts: int) -> tuple[str, ...]:
    """Return the names in DNS of the *hosts* hosts of the JobSet *name*, in order."""
    return tuple(f"{name}-{HOSTS}-0-{index}.{name}" for index in range(hosts))


_DISRUPTED: Final = {"type": "DisruptionTarget", "status": "True"}


def _host(pod: PodSpec, name: str) -> PodSpec:
    """Return *pod* with the variables from which the runner learns which host it is."""
    names = host_names(name, pod.accelerator.hosts)
    own = {
        Env.COORDINATOR: f"{names[0]}:{COORDINATOR_PORT}",
        Env.HOST_NAMES: ",".join(names),
    }
    return replace(
        pod,
        environment={**pod.environment, **own},
        field_variables={
            **pod.field_variables,
            Env.HOST_INDEX: _INDEX,
            Env.RESTART_ATTEMPT: _RESTARTS,
        },
    )
