"""Creation of the objects that a job needs, in an order in which its pod does not wait for them."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from kinetic_k8s.cluster.translation import Identity
from kinetic_k8s.errors import AlreadyExistsError, ClusterError, InvalidManifestError
from kinetic_k8s.manifests import Manifest
from kinetic_k8s.manifests.job import IndexedJobSpec, host_service
from kinetic_k8s.manifests.jobset import MESSAGE_PATTERNS, JobSetSpec
from kinetic_k8s.manifests.labels import HELD, JOB_ID
from kinetic_k8s.manifests.names import KEY_SECRET, runner_config_map_name
from kinetic_k8s.manifests.secrets import (
    added_owner,
    check_environment,
    environment_secret,
    key_in,
    key_secret,
    runner_config_map,
)
from kinetic_k8s.manifests.spec import WorkloadSpec
from kinetic_k8s.manifests.workload import checked_job
from kinetic_k8s.reading.causes import QUEUE

if TYPE_CHECKING:
    from kinetic_k8s.cluster.client import ApiServer

SLOW: Final = 0.2
"""If a round trip takes longer, in seconds, the Job is created suspended and resumed at the end.

Otherwise its pod may start before its Secret exists, and the kubelet tries again only 12 to 14 s later.
A suspended start costs 1 s.
"""
LONG: Final = 60.0
"""Seconds after which a submit makes sure that its workload still exists: other clients remove old ones."""
UNDO_LIMIT: Final = 10.0


@dataclass(frozen=True, kw_only=True)
class Runner:
    """The runner as a file in a ConfigMap, which jobs of a namespace share."""

    digest: str
    """SHA-256 of the content, in hexadecimal."""
    name: str
    """The file's name, which is its key in the ConfigMap."""
    content: bytes = field(repr=False)

    @property
    def config_map(self) -> str:
        """The ConfigMap's name."""
        return runner_config_map_name(self.digest)


def _ignore(warning: str) -> None:
    pass


def ensure_key(cluster: ApiServer, new_key: Callable[[], bytes]) -> bytes:
    """Return the signing key of the namespace; create its Secret with *new_key* if there is none.

    Raises:
        ClusterError: The Secret can be neither read nor created.
        InvalidRequestError: There is a Secret of that name without a key.
    """
    found = cluster.get("Secret", KEY_SECRET)
    if found is None:
        try:
            found = cluster.create(key_secret(new_key()))
        except AlreadyExistsError:  # Another client was first: use its key.
            found = cluster.get("Secret", KEY_SECRET)
            if found is None:
                raise
    return key_in(found)


def check_workload(
    cluster: ApiServer,
    spec: WorkloadSpec,
    *,
    environment: bool = False,
    runner: bool = False,
    notify: Callable[[str], object] = _ignore,
) -> None:
    """Raise unless *cluster* would accept the workload of *spec* and what it needs; create nothing.

    With *environment*, that is a Secret with captured variables, and with *runner*, a ConfigMap with the runner.
    A workload that differs only in its job id from one that this process has checked is not checked again.
    *notify* is called with a warning if the cluster lacks a feature that the job has to do without.

    Raises:
        ClusterError: The cluster does not accept it.
        InvalidRequestError: It cannot be rendered.
    """
    manifest = spec.manifest()
    needed = {
        "Service": isinstance(spec, IndexedJobSpec),
        "Secret": environment,
        "ConfigMap": runner,
    }
    drafts = [_draft(kind, spec.name) for kind, needs in needed.items() if needs]
    alike = json.dumps([manifest, drafts], sort_keys=True).replace(spec.pod.job_id, "")
    checked = (cluster.identity, hashlib.sha256(alike.encode()).digest())
    if checked in _ACCEPTED:
        return
    _create(cluster, spec, notify, dry_run=True)
    # Kinetic's own pods are valid: without fields of the user, a second request would find nothing.
    job = checked_job(manifest) if spec.pod.overrides else None
    if job is not None:
        cluster.create(job, dry_run=True)
    for draft in drafts:
        cluster.create(draft, dry_run=True)
    _ACCEPTED.add(checked)


def check_secret(cluster: ApiServer) -> None:
    """Raise unless *cluster* would accept a Secret with variables of a workload; create nothing.

    For a workload of which it is known only after `check_workload` that it needs one.

    Raises:
        ClusterError: The cluster does not accept it.
    """
    checked = (cluster.identity, b"Secret")
    if checked not in _ACCEPTED:
        cluster.create(_draft("Secret", "kn-check"), dry_run=True)
        _ACCEPTED.add(checked)


def _draft(kind: str, name: str) -> Manifest:
    """Return a minimal object of a kind that `create_workload` creates beside the workload."""
    draft: Manifest = {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}}
    return draft | ({"spec": {"clusterIP": "None"}} if kind == "Service" else {})


def create_workload(
    cluster: ApiServer,
    spec: WorkloadSpec,
    *,
    environment: Mapping[str, str] | None = None,
    runner: Runner | None = None,
    notify: Callable[[str], object] = _ignore,
    clock: Callable[[], float] = time.time,
) -> Manifest:
    """Create the workload of *spec*, the Secret with its captured *environment*, and its *runner*'s ConfigMap.

    *spec* refers to the Secret as `environment_secret_name(spec.name)`, and to the ConfigMap as
    `runner.config_map`. The Secret is removed with the workload, and the ConfigMap with the last workload
    that uses it. After a failure, nothing of the job is left. *notify* is called with a warning if the cluster
    lacks a feature that the job has to do without. *clock* goes on while this machine sleeps.

    Raises:
        ClusterError: The cluster does not accept one of these objects, or the workload was removed meanwhile.
        InvalidRequestError: One of these objects cannot be rendered.
    """
    check_environment(environment or {})
    started = clock()
    known = runner is not None and cluster.get("ConfigMap", runner.config_map, brief=True)
    upload = runner is not None and not known
    slow = (runner is not None or bool(environment)) and (upload or clock() - started > SLOW)
    # Only Kueue may suspend and resume the Jobs in its queues.
    hold = slow and not spec.suspended and QUEUE not in spec.pod.labels
    spec = replace(spec, suspended=spec.suspended or hold)
    job: Manifest | None = None
    try:
        job = _create(cluster, spec, notify, held=hold)
        if isinstance(spec, IndexedJobSpec):
            cluster.create(host_service(job))
        if environment:
            cluster.create(environment_secret(job, environment))
        if runner is not None:
            _ensure_runner(cluster, runner, job)
        if hold:
            change: Manifest = {"metadata": {"annotations": {HELD: None}}}
            if QUEUE not in job["metadata"]["labels"]:  # A webhook may have queued it.
                resumed = {"replicas": 1} if spec.kind == "LeaderWorkerSet" else {"suspend": False}
                change["spec"] = resumed
            # Custom resources accept no strategic merge patch.
            job = cluster.patch(spec.kind, spec.name, change, merge="plain")
        elif clock() - started > LONG:
            job = cluster.get(spec.kind, spec.name)
        if job is None:
            raise ClusterError(
                f"{spec.kind} {spec.name} in {cluster.identity} was removed before its submit ended.",
                hint="Another client took the submit for an interrupted one, or somebody deleted it. Submit it again.",
            )
    except BaseException as error:
        # A Job that existed before was not created here. If its deletion fails too, the first error matters.
        if job is not None or not isinstance(error, AlreadyExistsError):
            with suppress(ClusterError):
                undo = cluster.within(UNDO_LIMIT)
                # Its creation is uncertain. Its other objects are deleted with it.
                found = undo.get(spec.kind, spec.name, brief=True) or {"metadata": {}}
                if (found["metadata"].get("labels") or {}).get(JOB_ID) == spec.pod.job_id:
                    undo.delete(spec.kind, spec.name, uid=found["metadata"]["uid"])
        raise
    return job


def _create(
    cluster: ApiServer,
    spec: WorkloadSpec,
    notify: Callable[[str], object],
    *,
    dry_run: bool = False,
    held: bool = False,
) -> Manifest:
    """Create the workload, *held* with that annotation; if it is a JobSet of an older version, without the rules that this lacks."""
    server = cluster.identity.server

    def create(spec: WorkloadSpec) -> Manifest:
        manifest = spec.manifest()
        if held:
            manifest["metadata"].setdefault("annotations", {})[HELD] = "true"
        return cluster.create(manifest, dry_run=dry_run)

    if not isinstance(spec, JobSetSpec):
        return create(spec)
    older = replace(spec, distinguishes_exit_codes=False)
    try:
        return create(older if server in _OLDER_JOBSETS else spec)
    except InvalidManifestError as error:
        if MESSAGE_PATTERNS not in error.message:
            raise
    found = create(older)
    if server not in _OLDER_JOBSETS and spec.retries:
        _OLDER_JOBSETS.add(server)
        notify(
            f"The JobSet controller of {server} has no rules on exit codes ({MESSAGE_PATTERNS}), as version "
            "0.12 has: a job that could not be prepared uses up its retries before it fails."
        )
    return found


def _ensure_runner(cluster: ApiServer, runner: Runner, job: Manifest) -> None:
    """Make *job* an owner of the runner's ConfigMap; create the ConfigMap if it does not exist."""
    for _ in range(_ATTEMPTS):
        if cluster.patch("ConfigMap", runner.config_map, added_owner(job), brief=True) is None:
            with suppress(AlreadyExistsError):  # Another submit was first: become an owner as well.
                cluster.create(runner_config_map(runner.digest, runner.name, runner.content, job))
                return
            continue
        # If its other owners are gone, the garbage collector may already be removing it.
        found = cluster.get("ConfigMap", runner.config_map, brief=True)
        if found is not None and "deletionTimestamp" not in found["metadata"]:
            return
    raise ClusterError(
        f"The ConfigMap {runner.config_map} in {cluster.identity} is removed repeatedly.",
        hint="Another program deletes objects there. Ask the cluster's administrator.",
    )


_ATTEMPTS: Final = 5
_ACCEPTED: Final[set[tuple[Identity, bytes]]] = set()
"""Where this process has checked a workload, and the digest of its manifest without the job id; or a Secret."""
_OLDER_JOBSETS: Final[set[str]] = set()
"""The servers whose JobSets were found to lack `onJobFailureMessagePatterns` by this process."""
