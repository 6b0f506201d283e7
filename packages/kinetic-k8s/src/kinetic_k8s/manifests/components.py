"""The pods of a job under Pathways: the head, which runs the function, and the workers, which have the chips.

https://cloud.google.com/ai-hypercomputer/docs/workloads/pathways-on-cloud.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from kinetic_k8s.accelerators.types import Accelerator, Tpu, describe
from kinetic_k8s.errors import UnsupportedWorkloadError
from kinetic_k8s.manifests import Manifest
from kinetic_k8s.manifests.labels import PATHWAYS_VALUE
from kinetic_k8s.manifests.overrides import check_places, merged, of_workers
from kinetic_k8s.manifests.placement import Placement
from kinetic_k8s.manifests.pod import (
    PodSpec,
    Resources,
    common_fields,
    literal,
    place_of,
    pod_metadata,
    pod_template,
)
from kinetic_payload.layout import Env

COORDINATOR_PORT: Final = 8482
"""The default port of `jax.distributed`."""
_INDEX: Final = "metadata.annotations['batch.kubernetes.io/job-completion-index']"


Restart = Literal["Never", "Always"]

RESOURCE_MANAGER: Final = "pathways-rm"
PROXY: Final = "pathways-proxy"
WORKER: Final = "pathways-worker"
"""The containers of the components; `WORKER` is also the role of its pods."""
HEAD_VARIABLE: Final = "PATHWAYS_HEAD"
"""The variable with the head's name in DNS."""

_IMAGES: Final = "us-docker.pkg.dev/cloud-tpu-v2-images/pathways"
_PROXY_PORT: Final = 29000
_MANAGER_PORT: Final = 29001
_WORKER_PORTS: Final = (29005, 29006, 8471, 8080)
_PREFIXES: Final = {
    "ct4p-hightpu-4t": "tpuv4",
    "ct5lp-hightpu-4t": "tpuv5e",
    "ct5lp-hightpu-8t": "tpuv5e1t",
    "ct5p-hightpu-4t": "tpuv5",
    "ct6e-standard-4t": "tpuv6e",
    "ct6e-standard-8t": "tpuv6e1t",
    "tpu7x-standard-4t": "tpu7x",
}
"""Machine type → the name of its chips in an instance type of Pathways."""


_MANAGER: Final = Resources(cpu="8", memory="32G")
_PROXY: Final = Resources(cpu="16", memory="100G")
_FUNCTION: Final = Resources(cpu="24", memory="100G")
_WORKER: Final = Resources()


@dataclass(frozen=True, kw_only=True)
class PathwaysComponents:
    """The components of Pathways: images, resources and placement. The defaults are those of Google."""

    scratch: str
    """A folder in a bucket for temporary files, such as `gs://bucket/scratch`. Head and workers write to it."""
    server_image: str = f"{_IMAGES}/server:latest"
    """The image of resource manager and workers. Its tag must fit the job's version of JAX."""
    proxy_image: str = f"{_IMAGES}/proxy_server:latest"
    manager: Resources = _MANAGER
    """Resources of the resource manager."""
    proxy: Resources = _PROXY
    function: Resources = _FUNCTION
    """Resources of the container that runs the function, unless the pod has its own."""
    worker: Resources = _WORKER
    """Resources of a worker, besides its chips."""
    head_selector: Mapping[str, str] = field(default_factory=dict)
    """The nodes on which the head may run, such as those of one node pool. Empty: any without accelerators."""
    head_tolerations: tuple[Manifest, ...] = ()
    head_topology: str | None = "kubernetes.io/hostname"
    """The label of nodes whose value the head shares with no other JobSet. None: it shares nodes."""
    worker_selector: Mapping[str, str] = field(default_factory=dict)
    """Further labels of the nodes on which workers may run."""
    worker_tolerations: tuple[Manifest, ...] = ()


def instance_type(accelerator: Accelerator) -> str:
    """Return the value of `--instance_type` for *accelerator*, such as `tpuv6e:4x4`.

    Raises:
        UnsupportedWorkloadError: Pathways does not support the accelerator.
    """
    if not isinstance(accelerator, Tpu):
        raise UnsupportedWorkloadError(
            f"Pathways supports TPU slices only; got {describe(accelerator)}.",
            hint="Use backend='gke', or name a TPU slice.",
        )
    if accelerator.machine_type not in _PREFIXES:
        raise UnsupportedWorkloadError(
            f"Pathways does not support {describe(accelerator)}.",
            hint=f"Use backend='gke', or a slice of these machines: {', '.join(sorted(_PREFIXES))}.",
        )
    return f"{_PREFIXES[accelerator.machine_type]}:{accelerator.topology}"


def head_template(
    pod: PodSpec, components: PathwaysComponents, head: Manifest, restart: Restart = "Never"
) -> Manifest:
    """Render the pod that runs the function, beside the resource manager and the proxy.

    *head* is the source of its name in DNS: the entry of `env` without its name.

    Raises:
        InvalidRequestError: See `pod_template`; or the user's fields select nodes, or the shared memory is
            more than the default of the memory.
    """
    check_places(pod.overrides)
    given, default = pod.resources, components.function
    resources = replace(given, cpu=given.cpu or default.cpu, memory=given.memory or default.memory)
    environment = {
        **pod.environment,
        "JAX_BACKEND_TARGET": f"grpc://localhost:{_PROXY_PORT}",
        "XCLOUD_ENVIRONMENT": "GCP",
    }
    return pod_template(
        replace(pod, app=PATHWAYS_VALUE, resources=resources, environment=environment),
        placement=Placement(
            selector=dict(components.head_selector), tolerations=list(components.head_tolerations)
        ),
        sidecars=list(_sidecars(pod, components, head)),
        restart=restart,
    )


def worker_template(
    pod: PodSpec, components: PathwaysComponents, head: list[Manifest], restart: Restart = "Never"
) -> Manifest:
    """Render the pod of one host of the slice; *head* has its variables, `PATHWAYS_HEAD` among them."""
    pod = replace(pod, app=PATHWAYS_VALUE)
    placement = place_of(pod, exact=True)  # The resource manager is told the type of the slice.
    container = _component(
        WORKER,
        components.server_image,
        [
            "--server_port=29005",
            f"--resource_manager_address=$({HEAD_VARIABLE}):{_MANAGER_PORT}",
            f"--gcs_scratch_location={literal(components.scratch)}",
        ],
        ports=_WORKER_PORTS,
        env=head,
        resources=components.worker,
        accelerator=placement.resources,
    )
    spec = {
        **common_fields(pod, restart),
        "terminationGracePeriodSeconds": 30,
        "nodeSelector": {**components.worker_selector, **placement.selector},
        "tolerations": [*placement.tolerations, *components.worker_tolerations],
        "containers": [container],
    }
    template = {"metadata": pod_metadata(pod, WORKER), "spec": spec}
    return merged(template, of_workers(pod.overrides))


def _sidecars(pod: PodSpec, components: PathwaysComponents, head: Manifest) -> Iterator[Manifest]:
    """Render the components beside the function, as native sidecars: they start before it, and are stopped after it."""
    name, scratch = {"name": HEAD_VARIABLE, **head}, literal(components.scratch)
    manager = _component(
        RESOURCE_MANAGER,
        components.server_image,
        [
            f"--server_port={_MANAGER_PORT}",
            "--node_type=resource_manager",
            "--instance_count=1",
            f"--instance_type={instance_type(pod.accelerator)}",
            f"--gcs_scratch_location={scratch}",
        ],
        ports=(_MANAGER_PORT,),
        env=[name, {"name": "TPU_SKIP_MDS_QUERY", "value": "true"}],
        resources=components.manager,
    )
    proxy = _component(
        PROXY,
        components.proxy_image,
        [
            f"--server_port={_PROXY_PORT}",
            f"--resource_manager_address=$({HEAD_VARIABLE}):{_MANAGER_PORT}",
            f"--gcs_scratch_location={scratch}",
        ],
        ports=(_PROXY_PORT,),
        env=[name, {"name": "IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS", "value": "true"}],
        resources=components.proxy,
    )
    yield {**manager, "restartPolicy": "Always"}
    yield {**proxy, "restartPolicy": "Always"}


def _component(
    name: str,
    image: str,
    arguments: list[str],
    *,
    ports: tuple[int, ...],
    env: list[Manifest],
    resources: Resources,
    accelerator: dict[str, str] | None = None,
) -> Manifest:
    given = {"cpu": resources.cpu, "memory": resources.memory}
    amounts = {key: text for key, text in given.items() if text is not None} | (accelerator or {})
    return {
        "name": name,
        "image": image,
        "args": arguments,
        "env": env,
        "ports": [{"containerPort": port} for port in ports],
        "resources": {"requests": amounts, "limits": dict(amounts)},
        "securityContext": {"allowPrivilegeEscalation": False},
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def with_hosts(
    pod: PodSpec,
    names: Sequence[str],
    *,
    variables: Mapping[str, str] | None = None,
    fields: Mapping[str, str] | None = None,
) -> PodSpec:
    """Return *pod* as one of the hosts whose names in DNS are *names*, in their order.

    *variables* and *fields* are added to its environment, as `PodSpec.environment` and
    `PodSpec.field_variables`.
    """
    environment = {
        **pod.environment,
        Env.COORDINATOR: f"{names[0]}:{COORDINATOR_PORT}",
        Env.HOST_NAMES: ",".join(names),
        **(variables or {}),
    }
    from_fields = {**pod.field_variables, Env.HOST_INDEX: _INDEX, **(fields or {})}
    return replace(pod, environment=environment, field_variables=from_fields)
