"""`ClusterBackend`: runs each job as a workload of Kubernetes, under `gke` and under `pathways`."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from kinetic.backends.backend import (
    Environment,
    Explanation,
    Launch,
    Listed,
    LogLine,
    Observation,
    Watch,
    never,
)
from kinetic.backends.gke.checks import (
    bucket_of,
    check_mount,
    check_pools,
    check_request,
    cluster_region,
    pool_in,
    region_warning,
    service_account_of,
    storage_variables,
)
from kinetic.backends.gke.forms import (
    form_in,
    form_on,
    semantics_of,
    warnings_of,
    workload_of,
)
from kinetic.backends.gke.host_log import LogSources
from kinetic.backends.gke.images.builders import ClusterBuilders, registries
from kinetic.backends.gke.images.job_image import ClusterImages
from kinetic.backends.gke.job_spec import (
    ClusterEnvironment,
    secret_variables,
    workload_spec,
)
from kinetic.backends.gke.leftovers import IdleWorkloads, Workloads
from kinetic.backends.gke.logs import JobLog
from kinetic.backends.gke.observation import (
    IDLE_KIND,
    JobObservation,
    JobWatches,
    Observer,
    explanation_of,
    job_of,
    observation_of,
)
from kinetic.backends.gke.pathways_components import components_of, fitting_tag
from kinetic.backends.registry import CLUSTER
from kinetic.errors import JobError, SubmitError
from kinetic.jobs.record import record_of
from kinetic.jobs.services import LOOK
from kinetic.names import job_id_of, k8s_name_of
from kinetic_k8s.accelerators import parse_accelerator
from kinetic_k8s.cluster.creation import Runner, check_secret, check_workload, create_workload
from kinetic_k8s.cluster.port_forward import PortForward, running_pod
from kinetic_k8s.cluster.queues import Queues
from kinetic_k8s.cluster.removal import check_removal, remove_workload
from kinetic_k8s.errors import (
    AlreadyExistsError,
    ClusterError,
    NotPermittedError,
    StillThereError,
)
from kinetic_k8s.manifests import Manifest
from kinetic_k8s.manifests.compute_class import KIND
from kinetic_k8s.manifests.labels import of_job, of_jobs
from kinetic_k8s.manifests.names import CONTAINER
from kinetic_k8s.manifests.secrets import check_environment
from kinetic_k8s.manifests.workload import SPEC_OF_FORM
from kinetic_k8s.reading.attempts import views
from kinetic_k8s.reading.diagnosis import event_fields
from kinetic_k8s.reading.pools import class_of_pod, waits_for
from kinetic_k8s.reading.workloads import WorkloadView
from kinetic_payload.errors import KineticError
from kinetic_payload.layout import RUNNER_NAME, RUNNER_PATH, is_group_id, title_of
from kinetic_payload.records.job import JobRecord
from kinetic_payload.records.signing import UNSIGNED
from kinetic_payload.stores.outages import OutageLimit, changed_copy
from kinetic_payload.threads import parallel_map

if TYPE_CHECKING:
    from kinetic.data import Data
    from kinetic.settings.keys import KeySigner
    from kinetic.submit.package import Packaging
    from kinetic.submit.request import JobRequest
    from kinetic_k8s.accelerators.types import Accelerator
    from kinetic_k8s.cluster.client import ApiServer
    from kinetic_k8s.cluster.gke import GkeCluster
    from kinetic_k8s.manifests.compute_class import Pool
    from kinetic_k8s.manifests.spec import WorkloadSpec
    from kinetic_k8s.manifests.workload import Form
    from kinetic_payload.records.signing import Signing
    from kinetic_payload.stores.store import Location, Store


log = logging.getLogger("kinetic")

_LONGEST: Final = 60.0
"""Timeout of a request to the cluster in seconds, unless the limit of an operation is shorter."""
_PENDING: Final = "status.phase=Pending"
_PARALLEL: Final = 8
"""Workloads of a batch that are created at the same time."""


class ClusterBackend:
    """Runs jobs in one namespace of *cluster*, with their objects in *store*.

    The semantics of a job, `gke` or `pathways`, is its own. *home* (`KINETIC_HOME`) caches the runner's file,
    *environment* has the variables that name the bucket service, and *key_signer* verifies records in the store.
    *gke* is what the GKE API knows about the cluster; None: it was found in another way.
    """

    name = CLUSTER

    def __init__(
        self,
        cluster: ApiServer,
        store: Store,
        home: Path,
        key_signer: KeySigner | None,
        environment: Mapping[str, str],
        *,
        gke: GkeCluster | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._home = home
        self._signer: Signing = key_signer or UNSIGNED
        self._environment = environment
        self._gke = gke
        self._limit: OutageLimit | None = None
        self._observer = Observer(cluster, store, key_signer)
        self._watches = JobWatches(cluster)
        self._idle = IdleWorkloads(cluster, key_signer, clock=clock)
        self._workloads = Workloads(cluster, store.location)
        self._queues = Queues()
        self._pools: dict[Accelerator, Pool | None] = {}
        """The pools that a check has found, for the start that follows it."""

    def limited(self, limit: OutageLimit) -> Self:
        """Return the same backend for one operation; a request that changes the cluster takes no longer than *limit* either."""
        return changed_copy(
            self,
            _limit=limit,
            _store=self._store.limited(limit),
            _cluster=self._cluster.within(limit.at_most(_LONGEST)),
            _observer=self._observer.limited(limit),
        )

    def check(self, request: JobRequest, data: Data | None = None) -> Sequence[str]:
        """Refuse a request that cannot run on a cluster; let the cluster check it in a dry run. See `Backend.check`."""
        if data is not None:
            found = [check_mount(data, self._store.location, self._cluster)] if data.fuse else []
            if data.is_gcs:
                region = self._region(request)
                found.append(region_warning(bucket_of(data.path), region, self._limit))
            return list(filter(None, found))
        check_request(request, self._store.location)
        images = self._images()
        images.check(request)
        image = images.expected(request)
        check_environment(request.captured_env)
        form = form_on(self._cluster, request.accelerator, request.semantics, batch=request.batch)
        record = _draft(request, self._store.location, image)
        draft = Launch(
            record=record,
            record_digest="0" * 64,
            request=request,
            environment=Environment(image),
        )
        warnings: list[str] = []
        # The service account is looked up afterwards: without the namespace, it would be reported as missing.
        account = request.settings.service_account.value
        # The pods of a batch are those of a job.
        pool, unknown = pool_in(self._cluster, request)
        self._pools[request.accelerator] = pool
        if unknown and request.accelerator.kind != "cpu":
            warnings.append(unknown)
        spec = self._spec(draft, "job" if form == "batch" else form, account, pool)
        check_workload(
            self._cluster,
            spec,
            environment=bool(request.captured_env),
            runner=True,
            notify=warnings.append,
        )
        return [*warnings, *warnings_of(form), *self._warnings(request, pool, bool(unknown))]

    def _warnings(self, request: JobRequest, pool: Pool | None, unknown: bool) -> list[str]:
        """Return warnings about what the pods use; refuse what is certainly missing."""
        found = [service_account_of(self._cluster, request.settings.service_account.value).warning]
        if self._gke is not None and pool is None:
            found.append(check_pools(request, self._gke, unknown=unknown))
        for path, data in request.volumes.items():
            if data.fuse:
                found.append(check_mount(data, self._store.location, self._cluster, path=path))
        # Results and uploaded data are in the store, outputs wherever the user wants them.
        places = (str(self._store.location), request.output_dir or "")
        buckets = dict.fromkeys(bucket_of(each) for each in places if each.startswith("gs://"))
        region = self._region(request)
        found += (region_warning(bucket, region, self._limit) for bucket in buckets)
        return list(filter(None, found))

    def _region(self, request: JobRequest) -> str | None:
        known = None if self._gke is None else self._gke.location
        return cluster_region(request.settings, self._cluster.identity.context, known)

    def _images(self) -> ClusterImages:
        builders = ClusterBuilders(
            home=self._home,
            signing=self._signer,
            environment=self._environment,
            context=self._cluster.identity.context,
            location=None if self._gke is None else self._gke.location,
            limit=self._limit,
        )
        return ClusterImages(builders)

    def environment_of(self, record: JobRecord, request: JobRequest) -> ClusterEnvironment:  # noqa: ARG002
        """Return the image of the batch that has *record*, and the runner to mount into it."""
        return ClusterEnvironment(
            record.image_uri,
            packages=record.environment_digest,
            runner=self._runner(),
            pathways_tag=record.pathways_tag,
        )

    def _runner(self) -> Runner:
        from kinetic.jobs.runner import runner_bundle
        from kinetic_runner.bundle import bundle_digest

        data = runner_bundle(self._home, bytecode=False)
        return Runner(digest=bundle_digest(data), name=RUNNER_NAME, content=data)

    def environment(self, request: JobRequest, project: Packaging) -> ClusterEnvironment:
        """Return the image of the job, built if it does not exist, and the runner to mount into it."""
        runner = self._runner()
        secret, settings = partial(check_secret, self._cluster), request.settings
        made = self._images().ensure(request, project, self._store, secret, runner)
        named = settings.pathways_tag.value or settings.pathways_server_image.value
        if request.semantics != "pathways" or named:
            return made
        image = components_of(settings, self._store.location).server_image
        tag = fitting_tag(image, made.jax, registries(LOOK), project.notices.warn)
        return replace(made, pathways_tag=tag)

    @contextmanager
    def announced(self, record: JobRecord) -> Iterator[JobRecord]:
        """Yield the completed record. While it is new, a job without a workload is reported as pending."""
        where = self._cluster.identity
        accelerator, batch = parse_accelerator(record.accelerator), is_group_id(record.job_id)
        form = form_on(self._cluster, accelerator, semantics_of(record), batch=batch)
        yield replace(
            record,
            workload=SPEC_OF_FORM[form].kind,
            namespace=where.namespace,
            kube_context=where.context,
        )

    def start(self, launch: Launch) -> None:
        """Create the workload, or those of the workers of a batch, and the objects that it needs. See `Backend.start`."""
        assert isinstance(launch.environment, ClusterEnvironment)
        runner, form = launch.environment.runner, form_in(launch.record)
        try:
            account = service_account_of(
                self._cluster, launch.request.settings.service_account.value
            )
            wanted = launch.request.accelerator
            if wanted not in self._pools:
                self._pools[wanted], _ = pool_in(self._cluster, launch.request)
            pool = self._pools.pop(wanted)

            def create(worker: int | None) -> None:
                create_workload(
                    self._cluster,
                    self._spec(launch, form, account.name, pool, worker),
                    environment=secret_variables(launch),
                    runner=runner,
                )

            single = launch.batch is None or form == "batch"
            # After Ctrl-C, a request under way must end before the rollback looks for what it has created.
            workers = [None] if single else launch.workers
            parallel_map(create, workers, threads=_PARALLEL, grace=_LONGEST)
        except AlreadyExistsError as error:
            raise SubmitError(
                f"{title_of(launch.record.job_id)} was started before: {error.message}"
            ) from error
        except ClusterError as error:
            raise SubmitError(error.message, hint=error.hint) from error

    def _spec(
        self,
        launch: Launch,
        form: Form,
        service_account: str | None,
        pool: Pool | None,
        worker: int | None = None,
    ) -> WorkloadSpec:
        return workload_spec(
            launch,
            form,
            self._store.location,
            variables=storage_variables(self._environment),
            service_account=service_account,
            pool=pool,
            worker=worker,
        )

    def observe(self, record: JobRecord) -> Observation:
        """Observe the job's workload and pods once. See `Backend.observe`."""
        return self._observer.observe(record)

    def explain(self, record: JobRecord, seen: Observation) -> Explanation:
        """Explain from the cluster's objects what keeps the job from running, or how it ended."""
        if not isinstance(seen, JobObservation):
            return Explanation(seen.reason)
        workload = seen.job
        if workload is None or seen.status.terminal:
            return explanation_of(seen, [])
        cluster = self._cluster.within(LOOK)
        if is_group_id(record.job_id):
            # A batch may have had thousands of pods, and only those that wait explain anything.
            pods = cluster.list("Pod", labels=of_job(record.job_id), fields=_PENDING)
            seen = replace(seen, pods=tuple(pods))
        place = None if seen.pods else self._queues.place(cluster, workload)
        # Once it is admitted, its pods may still be refused, which only events tell.
        waits = place is not None and not place.admitted
        events = [] if waits else _events(cluster, workload, seen.pods)
        # The clock of this machine may be wrong by hours.
        found = explanation_of(seen, events, queue=place, now=cluster.now())
        pool = next((class_of_pod(pod) for pod in views(seen.pods) if pod.unschedulable), "")
        if not pool:
            return found
        try:
            reason, remedy = waits_for(pool, cluster.get(KIND, pool))
        except NotPermittedError:
            return found
        if not reason:
            return found
        return replace(found, reason=f"{found.reason} {reason}", remedy=remedy or found.remedy)

    @contextmanager
    def watch(self, records: Sequence[JobRecord]) -> Iterator[Watch]:
        """Watch the workloads and pods of the jobs."""
        try:
            with self._watches.open(records) as watch:
                yield watch
        finally:
            for record in records:
                self._release(record)

    def _release(self, record: JobRecord, *, cancelled: bool = False) -> None:
        """Delete the workload of a job that has its outcome, if it would go on."""
        kind = workload_of(record)
        if kind == IDLE_KIND or cancelled:
            self._idle.end(self._store, record.job_id, record.k8s_name, kind)

    def log_lines(
        self,
        record: JobRecord,
        *,
        follow: bool = False,
        tail: int | None = None,
        stopped: Callable[[], bool] = never,
    ) -> Iterator[LogLine]:
        """Iterate over the log of the latest attempt; with *follow*, until the job ends."""
        sources = LogSources(
            record=record, observer=self._observer, watches=self._watches, store=self._store
        )
        lines = JobLog(sources)
        if not follow:
            yield from lines.read(tail)
            return
        yield from lines.follow(tail, stopped)
        self._release(record)

    def forward(self, record: JobRecord) -> PortForward:
        """Return how the leader's pod is reached: through the API server."""
        return PortForward(self._cluster.within(LOOK), of_job(record.job_id))

    def execute(
        self, record: JobRecord, command: Sequence[str], *, host: int, terminal: bool
    ) -> int:
        """Run *command* in the pod of *host*, through the API server."""
        cluster = self._cluster.within(LOOK)
        pod = running_pod(views(cluster.list("Pod", labels=of_job(record.job_id))), host)
        if pod is None:
            raise JobError(
                f"Host {host} of job {record.job_id} does not run now.",
                hint="Between two attempts it has no pod. Try again.",
                job_id=record.job_id,
            )
        beside = ("python3", RUNNER_PATH, "--beside", *command)
        return cluster.execute(pod.name, CONTAINER, beside, terminal=terminal).run(
            terminal=terminal
        )

    def stop(
        self,
        record: JobRecord,
        *,
        timeout: float,
        poll_interval: float,  # noqa: ARG002
        remove: bool = False,  # noqa: ARG002
        dry_run: bool = False,
    ) -> None:
        """Delete the job's workloads with their Secrets, and return when none of their pods is left. See `Backend.stop`."""
        cluster, kind = self._cluster, workload_of(record)
        found: Sequence[Manifest] = ()
        try:
            found = self._observer.workloads(record, cluster)
            for each in found if dry_run else ():
                metadata = each["metadata"]
                check_removal(cluster, kind, metadata["name"], uid=metadata["uid"])
            if not dry_run:
                names = [each["metadata"]["name"] for each in found]
                remove_workload(cluster, kind, *names, pods=of_job(record.job_id), timeout=timeout)
        except StillThereError as error:
            raise JobError(
                f"{title_of(record.job_id)} is still there: {error.message}",
                hint=error.hint,
                job_id=record.job_id,
            ) from error
        except ClusterError as error:
            if not found or any(not observation_of(each, ()).status.terminal for each in found):
                runs = "keeps running" if found else "may keep running"
                error.message += f" The job {runs}, and {record.accelerator} is still billed."
                error.args = (error.message,)
            raise

    def list(self) -> Iterator[Listed]:
        """Iterate over the jobs that have a workload, finished ones too."""
        cluster = self._cluster.within(LOOK)
        workloads = self._workloads.recent()
        pods: defaultdict[str, list[Manifest]] = defaultdict(list)
        for pod in cluster.list("Pod", labels=of_jobs(())):
            pods[job_of(pod)].append(pod)
        for workload in workloads:
            if job_id := job_of(workload):
                self._end_if_idle(workload, job_id)
                yield Listed(job_id, self._observer.of(workload, pods[job_id], job_id))

    def _end_if_idle(self, workload: Manifest, job_id: str, *, ended: bool = False) -> None:
        """Delete a workload if its job has an outcome and it would go on; *ended*: whether it certainly has one."""
        view = WorkloadView(workload)
        if view.kind == IDLE_KIND or (ended and not view.has_ended):
            self._idle.end(self._store, job_id, view.name, view.kind)

    def tidy(
        self,
        ended: Sequence[JobRecord],
        *,
        cancelled: bool = False,
        recorded: Set[str] | None = None,
    ) -> None:
        """Delete workloads of ended jobs and of killed submits; warn of those without a record. See `Backend.tidy`."""
        if recorded is None:
            for record in ended:
                self._release(record, cancelled=cancelled)
            return
        ids = {record.job_id for record in ended}
        try:
            found = self._workloads.find()
            for each in found:
                self._end_if_idle(each, job_of(each), ended=job_of(each) in ids)
            self._workloads.report(found, recorded, time.time())
            self._workloads.remove(found, self._observer)
        except KineticError as error:
            log.info("What killed submits left could not be looked for: %s", error.message)


def _events(cluster: ApiServer, job: Manifest, pods: Sequence[Manifest]) -> list[Manifest]:
    """Return the events that may explain what *job* waits for, if they may be read."""
    try:
        return [
            event
            for fields in event_fields(job, pods)
            for event in cluster.list("Event", fields=fields)
        ]
    except NotPermittedError:
        return []  # Without events, the workload and its pods still explain something.


def _draft(request: JobRequest, store: Location, image: str) -> JobRecord:
    """Return a stand-in for the record of the job, with names and digests of the same lengths."""
    now, suffix = datetime.now(UTC), "0" * 7
    return record_of(
        request,
        job_id=job_id_of(request.accelerator.slug, request.function_name, now, suffix),
        k8s_name=k8s_name_of(request.function_name, suffix),
        created_at=now,
        store=store,
        environment=Environment(image),
        settings={},
        payload_digest="0" * 64,
        context_digest="0" * 64,
    )
