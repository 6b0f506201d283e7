"""Build the spec of a workload from a launch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from kinetic.backends.backend import Environment, Launch
from kinetic.backends.gke.pathways_components import components_of, tag_of
from kinetic.jobs.runner import runner_command, runner_environment
from kinetic.names import worker_name
from kinetic_k8s.cluster.creation import Runner
from kinetic_k8s.manifests.names import KEY_IN_SECRET, KEY_SECRET, environment_secret_name
from kinetic_k8s.manifests.placement import accelerator_environment
from kinetic_k8s.manifests.pod import (
    WORKSPACE,
    MountedFile,
    NodeFolder,
    PodSpec,
    Resources,
    SecretVariable,
)
from kinetic_k8s.manifests.volumes import fuse_volumes
from kinetic_k8s.manifests.workload import SPEC_OF_FORM
from kinetic_k8s.quantity import quantity_of
from kinetic_payload.frozen import frozen
from kinetic_payload.layout import GRACE_SECONDS, RUNNER_PATH, Env, Flag
from kinetic_payload.records.retry import most_lost

if TYPE_CHECKING:
    from kinetic.submit.request import JobRequest
    from kinetic_k8s.manifests.components import PathwaysComponents
    from kinetic_k8s.manifests.compute_class import Pool
    from kinetic_k8s.manifests.spec import WorkloadSpec
    from kinetic_k8s.manifests.workload import Form
    from kinetic_payload.stores.store import Location

_PACKAGE_CACHE: Final = "/kinetic/packages"
_REPORT_SECONDS: Final = 5.0
"""Seconds that a runner has after the grace of its child, to end the child and to write an outcome."""


@frozen()
class ClusterEnvironment(Environment):
    """An image, and the runner that is mounted into it."""

    runner: Runner = field(kw_only=True)
    netrc: str = field(default="", kw_only=True, repr=False)
    """Credentials for the indexes of the packages. Secret."""
    jax: str | None = field(default=None, kw_only=True)
    """The version of JAX that the job imports; None: it is not known."""


def workload_spec(
    launch: Launch,
    form: Form,
    store: Location,
    *,
    variables: Mapping[str, str],
    service_account: str | None = None,
    pool: Pool | None = None,
    worker: int | None = None,
) -> WorkloadSpec:
    """Return the spec of the workload that runs the job of *launch*, whose objects are at *store*.

    Captured values and the key are not in the spec: it names the Secrets that hold them. For a dry run, before the
    environment is prepared, it mounts no runner.

    Args:
        launch: The job.
        form: How the job becomes a workload.
        store: Where the job's objects are.
        variables: Variables that name the bucket service for pods.
        service_account: The pod's; None: the namespace's default.
        pool: The pool whose machines the pods run on; None: any that the accelerator names.
        worker: The number of the worker that the workload is, if each worker of the batch has its own.

    Raises:
        InvalidRequestError: Kubernetes does not accept the amount of a resource.
        ConfigurationError: A variable that describes the bucket service or Pathways has an invalid value.
    """
    record = launch.record
    name, retries = record.k8s_name, record.retries
    if worker is not None:
        assert launch.batch is not None
        name = worker_name(name, worker)
        retries = most_lost(launch.batch.per_worker)  # It repeats its inputs itself.
        variables = {**variables, Env.BATCH_WORKER: str(worker)}
    values: dict[str, Any] = {
        "name": name,
        "pod": replace(
            _pod(launch, form, store, variables, name), service_account=service_account, pool=pool
        ),
        "retries": retries,
    }
    if form == "batch":
        assert launch.batch is not None
        values |= {
            "workers": launch.workers,
            "at_once": launch.batch.max_concurrent,
            "per_worker": launch.batch.per_worker,
        }
    elif form in ("pathways", "pathways-lws"):
        values["components"] = _components(launch, store)
    return SPEC_OF_FORM[form](**values)


def _components(launch: Launch, store: Location) -> PathwaysComponents:
    tag = launch.environment.pathways_tag
    return components_of(launch.request.settings, store, tag)


def _pod(
    launch: Launch,
    form: Form,
    store: Location,
    variables: Mapping[str, str],
    name: str,
) -> PodSpec:
    record, request, environment = launch.record, launch.request, launch.environment
    command = runner_command(
        launch, store, python="python3", bundle=RUNNER_PATH, workspace=WORKSPACE
    )
    # The containers of a LeaderWorkerSet are started again whenever they end.
    idle = (Flag.IDLE,) if form == "pathways-lws" else ()
    files = (
        (
            MountedFile(
                config_map=environment.runner.config_map,
                key=environment.runner.name,
                path=RUNNER_PATH,
            ),
        )
        if isinstance(environment, ClusterEnvironment)
        else ()
    )
    own = {**runner_environment(record, store), **variables}
    node_folders: tuple[NodeFolder, ...] = ()
    node_cache = request.settings.node_cache.value
    if node_cache is not None and request.image.mode == "prebuilt":
        # Jobs that install packages share uv's cache.
        own[Env.PACKAGE_CACHE] = _PACKAGE_CACHE
        node_folders = (NodeFolder(name="package-cache", source=node_cache, path=_PACKAGE_CACHE),)
    return PodSpec(
        job_id=record.job_id,
        accelerator=request.accelerator,
        image=environment.image,
        command=(*command, *idle),
        environment={**_accelerator_variables(launch, store), **own},
        environment_secret=environment_secret_name(name) if secret_variables(launch) else None,
        field_variables={Env.NODE_NAME: "spec.nodeName", Env.POD_NAME: "metadata.name"},
        secret_variables=(
            SecretVariable(variable=Env.SIGNING_KEY, secret=KEY_SECRET, key=KEY_IN_SECRET),
        ),
        files=files,
        resources=_resources(request),
        grace=timedelta(seconds=GRACE_SECONDS + _REPORT_SECONDS),
        volumes=fuse_volumes(launch.data, store),
        node_folders=node_folders,
        labels=request.labels,
        overrides=request.pod_overrides,
        about={
            "function": record.func_name,
            "submitter": record.submitter or "",
            "client": record.client,
        },
    )


def secret_variables(launch: Launch) -> Mapping[str, str]:
    """Return the variables of the pod that its Secret holds: captured ones, and credentials of indexes."""
    captured, environment = launch.request.captured_env, launch.environment
    if isinstance(environment, ClusterEnvironment) and environment.netrc:
        return {**captured, Env.INDEX_NETRC: environment.netrc}
    return captured


def _accelerator_variables(launch: Launch, store: Location) -> dict[str, str]:
    """Return the variables about the accelerator, except those that the user captured.

    Variables of a pod would hide those of its Secret.
    """
    accelerator, semantics = launch.request.accelerator, launch.request.semantics
    found = accelerator_environment(accelerator, semantics)
    if accelerator.kind != "cpu":
        devices = accelerator.devices // (1 if semantics == "pathways" else accelerator.hosts)
        found[Env.DEVICES] = f"{accelerator.kind}:{devices}"
    if semantics == "pathways":
        found[Env.PATHWAYS] = tag_of(_components(launch, store))
    captured = set(launch.request.captured_env)
    if "JAX_PLATFORMS" in captured:  # The user decides what JAX is to find.
        captured.add(Env.DEVICES)
    return {name: value for name, value in found.items() if name not in captured}


def _resources(request: JobRequest) -> Resources:
    cpu, memory, shared = request.cpu, request.memory, request.shared_memory
    return Resources(
        cpu=None if cpu is None else f"{max(1, round(cpu * 1000))}m",
        memory=None if memory is None else quantity_of(memory),
        shared_memory=None if shared is None else quantity_of(shared),
    )
