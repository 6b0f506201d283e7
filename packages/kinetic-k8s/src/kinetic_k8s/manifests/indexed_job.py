"""Indexed Jobs: several hosts, on a cluster that serves no JobSet. They do not restart as a whole."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from kinetic_k8s.manifests import Manifest
from kinetic_k8s.manifests.components import with_hosts
from kinetic_k8s.manifests.labels import NODE_POOL
from kinetic_k8s.manifests.names import check_host_names
from kinetic_k8s.manifests.pod import pod_template
from kinetic_k8s.manifests.secrets import owner_reference
from kinetic_k8s.manifests.spec import (
    FAIL_ON_DISRUPTIONS,
    Kind,
    WorkloadSpec,
    metadata_of,
    on_exit_codes,
)
from kinetic_payload.layout import Env


@dataclass(frozen=True, kw_only=True)
class IndexedJobSpec(WorkloadSpec):
    """A job on several hosts, each of which runs the function, where the cluster serves no JobSet.

    A Job replaces single pods, and a replaced host could not join the others again. So the first host that
    fails or is preempted ends the job: `retries` and `uncounted_exit_codes` have no effect. Report this to
    the user.
    """

    kind: ClassVar[Kind] = "Job"


def indexed_job_manifest(spec: IndexedJobSpec) -> Manifest:
    """Render *spec* as an Indexed Job whose pods are the hosts.

    The hosts find each other by the names of `host_service`, which must be created with it.

    Raises:
        InvalidRequestError: The name or a label is not valid.
    """
    hosts = spec.pod.accelerator.hosts
    names = host_names(spec.name, hosts)
    check_host_names(names)
    # There is only one attempt, and all hosts must know its number.
    pod = with_hosts(spec.pod, names, variables={Env.RESTART_ATTEMPT: "0"})
    final = {*spec.fatal_exit_codes, *spec.uncounted_exit_codes}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata_of(spec),
        "spec": {
            "completionMode": "Indexed",
            "completions": hosts,
            "parallelism": hosts,
            "backoffLimit": 0,
            "podFailurePolicy": {"rules": [FAIL_ON_DISRUPTIONS, *on_exit_codes("FailJob", final)]},
            "podReplacementPolicy": "Failed",
            "ttlSecondsAfterFinished": int(spec.keep_for.total_seconds()),
            **({"suspend": True} if spec.suspended else {}),
            # On GKE, a node pool of several hosts is one slice.
            "template": pod_template(replace(pod, subdomain=spec.name, topology=NODE_POOL)),
        },
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


def host_names(name: str, hosts: int) -> tuple[str, ...]:
    """Return the names in DNS of the *hosts* hosts of the Indexed Job *name*, in order."""
    return tuple(f"{name}-{index}.{name}" for index in range(hosts))
