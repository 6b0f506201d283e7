"""Build the spec of a workload from a launch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import TYPE_CHECKING

from kinetic.backends.backend import Environment, Launch
from kinetic.backends.gke.mounts import pod_volumes
from kinetic.backends.gke.submitter import submitter
from kinetic.jobs.runner import python_options, runner_environment, runner_flags
from kinetic_k8s.cluster.creation import Runner
from kinetic_k8s.manifests.job import JobSpec
from kinetic_k8s.manifests.jobset import JobSetSpec
from kinetic_k8s.manifests.names import KEY_IN_SECRET, KEY_SECRET, environment_secret_name
from kinetic_k8s.manifests.pod import (
    WORKSPACE,
    MountedFile,
    PodSpec,
    SecretVariable,
)
from kinetic_k8s.manifests.pod import Resources as PodResources
from kinetic_k8s.manifests.spec import WorkloadSpec
from kinetic_payload.layout import EXIT_NOT_PREPARED, RUNNER_PATH, Env, Flag

if TYPE_CHECKING:
    from kinetic.backends.gke.forms import Form
    from kinetic.resources import Resources
    from kinetic_payload.stores.store import Location

DEBUG_PORT = 5678
"""The port of debugpy, on the loopback interface of the leader's pod."""


@dataclass(frozen=True)
class ClusterEnvironment(Environment):
    """An image, and the runner that is mounted into it."""

    runner: Runner = field(kw_only=True)


def workload_spec(
    form: Form,
    launch: Launch,
    store: Location,
    *,
    runner: Runner | None,
    variables: Mapping[str, str],
    service_account: str | None = None,
) -> WorkloadSpec:
    """Return the spec of the workload that runs the job of *launch*, whose objects are at *store*.

    *variables* name the bucket service for the pod. *service_account* is the pod's; None: the namespace's default.
    Captured values and the key are not in the spec: it names
    the Secrets that hold them.

    Raises:
        InvalidRequestError: Kubernetes does not accept the amount of a resource.
    """
    record, request = launch.record, launch.request
    flags = runner_flags(
        launch,
        store,
        {
            Flag.WORKSPACE: WORKSPACE,
            Flag.RETRIES: record.retries,
            Flag.PREEMPTIONS: record.preemptions,
            Flag.DEBUG_PORT: DEBUG_PORT if request.debug else None,
        },
    )
    files = (
        (MountedFile(config_map=runner.config_map, key=runner.name, path=RUNNER_PATH),)
        if runner is not None
        else ()
    )
    pod = PodSpec(
        job_id=record.job_id,
        accelerator=request.accelerator,
        image=launch.environment.image,
        command=("python3", "-u", *python_options(request), RUNNER_PATH, *flags, Flag.END_MARKER),
        environment={**runner_environment(record, store), **variables},
        environment_secret=environment_secret_name(record.k8s_name)
        if request.captured_env
        else None,
        secret_variables=(
            SecretVariable(variable=Env.SIGNING_KEY, secret=KEY_SECRET, key=KEY_IN_SECRET),
        ),
        files=files,
        resources=_resources(request.resources),
        grace=timedelta(seconds=launch.grace),
        service_account=service_account,
        volumes=pod_volumes(launch.data, store),
        labels=request.labels,
        overrides=request.pod_overrides,
        about={"function": record.func_name, "submitter": submitter(), "client": record.client},
    )
    spec = WorkloadSpec(
        name=record.k8s_name,
        pod=pod,
        retries=record.retries,
        fatal_exit_codes=(EXIT_NOT_PREPARED,),
    )
    values = {each.name: getattr(spec, each.name) for each in fields(spec)}
    return JobSpec(**values) if form == "job" else JobSetSpec(**values)


def _resources(requested: Resources) -> PodResources:
    cpu, memory, shared = requested.cpu, requested.memory, requested.shared_memory
    return PodResources(
        cpu=None if cpu is None else f"{round(cpu * 1000)}m",
        memory=None if memory is None else str(memory),
        shared_memory=None if shared is None else str(shared),
    )
