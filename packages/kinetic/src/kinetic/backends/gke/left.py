"""Workloads that are left behind: by a killed submit, or by a record that was removed."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from kinetic.backends.gke.idle import delete_command
from kinetic.backends.gke.observation import job_of
from kinetic.backends.gke.observer import Observer
from kinetic.backends.gke.timeouts import with_short_timeout
from kinetic.backends.gke.workloads import Workloads
from kinetic.job_status import JobStatus
from kinetic_k8s.manifests import Manifest
from kinetic_k8s.manifests.labels import JOB_ID, of_jobs
from kinetic_k8s.manifests.names import (
    CONTAINER,
    environment_secret_name,
    is_runner_config_map,
)
from kinetic_k8s.reading.attempts import views
from kinetic_k8s.reading.causes import QUEUE
from kinetic_k8s.reading.workloads import WorkloadView
from kinetic_payload.layout import Flag
from kinetic_payload.stores.store import Location
from kinetic_payload.threads import parallel_map

if TYPE_CHECKING:
    from kinetic_k8s.cluster.client import ApiServer

log = logging.getLogger("kinetic")

LEFT_AGE: Final = 3600.0
"""Seconds after which a workload whose objects are incomplete was left by a killed submit; a submit creates them
within seconds, and waits at most a minute for each."""
_NEW: Final = 300.0
"""Seconds in which a workload may be newer than the list of records."""
_PARALLEL: Final = 8
_MOST: Final = 20
"""Workloads whose objects one call looks for."""


@dataclass(frozen=True, kw_only=True)
class Left:
    """Finds what is left of jobs whose objects are at *store*, among all *workloads* of the namespace."""

    cluster: ApiServer
    workloads: Workloads
    observer: Observer
    store: Location

    reported: set[str]
    """The uids of the workloads that this process has reported."""

    def report(self, workloads: Sequence[Manifest], recorded: Set[str], now: float) -> None:
        """Warn once of each job without a record: they are skipped everywhere, and nobody sees what they cost."""
        for each in workloads:
            job_id, view = job_of(each), WorkloadView(each)
            known = job_id in recorded or view.uid in self.reported
            if known or now - created_at(each) < _NEW:
                continue
            self.reported.add(view.uid)
            log.warning(
                "Job %s is left out: it has no record in %s. Delete its %s: %s",
                job_id,
                self.store,
                view.kind,
                delete_command(view.kind, view.name, self.cluster.identity),
            )

    def remove(self, workloads: Sequence[Manifest], now: float) -> None:
        """Delete workloads that wait, for longer than `LEFT_AGE`, for what only their killed submit would do.

        That is to create their objects, or to resume them. Their pods may hold an accelerator. The jobs have
        failed then. Each call looks at a part of the workloads that wait.
        """
        old = [each for each in workloads if now - created_at(each) > LEFT_AGE]
        waiting = self._not_started(old) if old else []
        first = int(now) % max(len(waiting), 1)
        chosen = [*waiting[first:], *waiting[:first]][:_MOST]
        lacks = parallel_map(self._lack, chosen, threads=_PARALLEL)
        left = [(each, lack) for each, lack in zip(chosen, lacks, strict=True) if lack]
        if not left:
            return
        server_now = self._server_time()  # This machine's clock may be wrong.
        for each, lack in left:
            if server_now - created_at(each) <= LEFT_AGE:
                continue
            view = WorkloadView(each)
            log.warning(
                "Job %s is removed: its submit was interrupted before it %s.", job_of(each), lack
            )
            with_short_timeout(self.cluster).delete(view.kind, view.name, uid=view.uid)
            self.workloads.forget()

    def find(self) -> list[Manifest]:
        """Return the workloads of jobs whose objects are at the store."""
        return [each for each in self.workloads.list() if str(self.store) in stores_of(each)]

    def _not_started(self, workloads: Sequence[Manifest]) -> list[Manifest]:
        """Return those of *workloads* that have neither ended nor a pod that has started."""
        pods = views(with_short_timeout(self.cluster).list("Pod", labels=of_jobs(())))
        started = {pod.manifest["metadata"]["labels"].get(JOB_ID) for pod in pods if pod.started}
        found = []
        for each in workloads:
            view = WorkloadView(each)
            if job_of(each) not in started and not (view.succeeded or view.failure):
                found.append(each)
        return found

    def _server_time(self) -> float:
        """Return the time of the server: that at which it would create an object."""
        name = f"kn-time-{secrets.token_hex(4)}"
        draft = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
        drafted = with_short_timeout(self.cluster).create(draft, dry_run=True)
        # Without a time, nothing is old enough.
        return created_at(drafted) if drafted["metadata"].get("creationTimestamp") else 0.0

    def _lack(self, workload: Manifest) -> str:
        """Return what the submit of a pending workload has not done; empty if nothing, or if it is not pending."""
        if not self._is_pending(workload):
            return ""
        if missing := self._missing(workload):
            return f"created the {missing}"
        view = WorkloadView(workload)
        return "resumed it" if view.held and QUEUE not in view.labels else ""

    def _is_pending(self, workload: Manifest) -> bool:
        return self.observer.of(workload, (), job_of(workload)).status is JobStatus.PENDING

    def _missing(self, workload: Manifest) -> str:
        """Return a name of an object that the workload's pods need and that does not exist; empty if all exist."""
        for kind, name in sorted(needs_of(workload)):
            if with_short_timeout(self.cluster).get(kind, name, brief=True) is None:
                return f"{kind} {name}"
        return ""


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
            secret = source.get("secretRef") or {}
            if secret.get("name") == own and not secret.get("optional"):
                found.add(("Secret", own))
    for volume in _volumes(workload):
        config_map = volume.get("configMap") or {}
        name = config_map.get("name") or ""
        if is_runner_config_map(name) and not config_map.get("optional"):
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
