"""Workloads that are left behind: by a killed submit, or by a record that was removed."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any, Final

from kinetic.backends.gke.observer import Observer
from kinetic.backends.gke.timeouts import with_short_timeout
from kinetic.backends.gke.workloads import Workloads
from kinetic.job_status import JobStatus
from kinetic_k8s.cluster.cluster import Cluster
from kinetic_k8s.manifests import Manifest
from kinetic_k8s.manifests.labels import JOB_ID
from kinetic_k8s.manifests.names import (
    CONTAINER,
    environment_secret_name,
    is_runner_config_map,
)
from kinetic_k8s.reading.workloads import WorkloadView
from kinetic_payload.layout import Flag
from kinetic_payload.stores.store import Location

log = logging.getLogger("kinetic")

LEFT_AGE: Final = 3600.0
"""Seconds after which a workload whose objects are incomplete was left by a killed submit; a submit creates them
within seconds, and waits at most a minute for each."""
_NEW: Final = 300.0
"""Seconds in which a workload may be newer than the list of records."""
_MOST: Final = 20
"""Workloads whose objects one call looks for."""


@dataclass(frozen=True, kw_only=True)
class Left:
    """Finds what is left of jobs whose objects are at *store*, among all *workloads* of the namespace."""

    cluster: Cluster
    workloads: Workloads
    observer: Observer
    store: Location

    def report(self, workloads: Sequence[Manifest], recorded: Set[str], now: float) -> None:
        """Warn of jobs without a record: they are skipped everywhere, and nobody sees what they cost."""
        for each in workloads:
            job_id = job_of(each)
            if job_id in recorded or now - created_at(each) < _NEW:
                continue
            view = WorkloadView(each)
            log.warning(
                "Job %s is left out: it has no record in %s. Delete its %s: kubectl delete %s %s -n %s",
                job_id,
                self.store,
                view.kind,
                view.kind.lower(),
                view.name,
                self.cluster.identity.namespace,
            )

    def remove(self, workloads: Sequence[Manifest], now: float) -> None:
        """Delete workloads that wait, for longer than `LEFT_AGE`, for objects that nobody will create any more.

        Their pods may hold an accelerator. The jobs have failed then: their submit was interrupted.
        """
        old = [each for each in workloads if now - created_at(each) > LEFT_AGE]
        waiting = [each for each in old if self._is_pending(each)]
        for each in waiting[:_MOST]:
            if missing := self._missing(each):
                view = WorkloadView(each)
                log.warning(
                    "Job %s is removed: its submit was interrupted before it created the %s.",
                    job_of(each),
                    missing,
                )
                with_short_timeout(self.cluster).delete(view.kind, view.name, uid=view.uid)

    def find(self) -> list[Manifest]:
        """Return the workloads of jobs whose objects are at the store."""
        return [each for each in self.workloads.list() if str(self.store) in stores_of(each)]

    def _is_pending(self, workload: Manifest) -> bool:
        return self.observer.of(workload, (), job_of(workload)).status is JobStatus.PENDING

    def _missing(self, workload: Manifest) -> str:
        """Return a name of an object that the workload's pods need and that does not exist; empty if all exist."""
        for kind, name in sorted(needs_of(workload)):
            if with_short_timeout(self.cluster).get(kind, name, brief=True) is None:
                return f"{kind} {name}"
        return ""


def job_of(workload: Manifest) -> str:
    """Return the id of the workload's job."""
    return str(workload["metadata"]["labels"].get(JOB_ID, ""))


def created_at(workload: Manifest) -> float:
    """Return when the workload was created, by the clock of its cluster."""
    return datetime.fromisoformat(workload["metadata"]["creationTimestamp"]).timestamp()


def stores_of(workload: Manifest) -> set[str]:
    """Return the stores in which the runners of the workload find their job."""
    found = set()
    for container in _containers(workload):
        command = container.get("command") or []
        found |= {value for flag, value in pairwise(command) if flag == Flag.STORE}
    return found


def needs_of(workload: Manifest) -> set[tuple[str, str]]:
    """Return kind and name of the objects of Kinetic without which the function's container does not start.

    Objects that `pod_overrides` names are the user's own, and may come later.
    """
    found = set()
    own = environment_secret_name(workload["metadata"]["name"])
    for container in _containers(workload):
        for source in container.get("envFrom") or ():
            if (source.get("secretRef") or {}).get("name") == own:
                found.add(("Secret", own))
    for volume in _volumes(workload):
        name = (volume.get("configMap") or {}).get("name") or ""
        if is_runner_config_map(name):
            found.add(("ConfigMap", name))
    return found


def _containers(manifest: Any) -> Iterator[Manifest]:
    return (
        each
        for spec in _pod_specs(manifest)
        for each in spec["containers"]
        if each.get("name") == CONTAINER
    )


def _volumes(manifest: Any) -> Iterator[Manifest]:
    return (each for spec in _pod_specs(manifest) for each in spec.get("volumes") or ())


def _pod_specs(manifest: Any) -> Iterator[Manifest]:
    """Iterate over the specs of pods, wherever they are in a workload of any kind."""
    if isinstance(manifest, dict):
        if isinstance(manifest.get("containers"), list):
            yield manifest
        else:
            for value in manifest.values():
                yield from _pod_specs(value)
    elif isinstance(manifest, list):
        for value in manifest:
            yield from _pod_specs(value)
