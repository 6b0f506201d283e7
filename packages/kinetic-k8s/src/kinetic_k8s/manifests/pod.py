"""The pod template that all workloads share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Literal

from kinetic_k8s.accelerators.types import Accelerator, Cpu
from kinetic_k8s.manifests import Manifest
from kinetic_k8s.manifests.compute_class import Pool, placement_in
from kinetic_k8s.manifests.labels import (
    APP_VALUE,
    HOST_ROLE,
    JOB_ID,
    ROLE,
    labels_and_annotations,
    standard_labels,
)
from kinetic_k8s.manifests.names import CONTAINER
from kinetic_k8s.manifests.overrides import merged
from kinetic_k8s.manifests.placement import Placement, placement_of
from kinetic_k8s.manifests.volumes import ANNOTATION, PodVolumes
from kinetic_k8s.quantity import parse_quantity
from kinetic_payload.errors import InvalidRequestError

WORKSPACE: Final = "/kinetic/workspace"
_SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - a mount point of the container
_DEFAULT_CPU: Final = "1"
_DEFAULT_MEMORY: Final = "2Gi"
_LEAST: Final = {"cpu": "100m", "memory": "256Mi"}
"""The requests of a job with an accelerator, whose machine is its own. Without any, its pod would be the first
that the node evicts."""
_CAPABILITIES: Final[Manifest] = {
    "drop": ["ALL"],
    # What root needs to change owners and users: `tar`, `chown`, `apt-get` and `su` fail without them.
    "add": ["CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID"],
}
"""The capabilities of a container that runs as root. Others have none."""


@dataclass(frozen=True, kw_only=True)
class MountedFile:
    """A file in the container whose content is a key of a ConfigMap; it hides the image's file at *path*."""

    config_map: str
    key: str
    path: str


@dataclass(frozen=True, kw_only=True)
class SecretVariable:
    """An environment variable whose value is a key of a Secret."""

    variable: str
    secret: str
    key: str


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Resources of a pod besides the accelerator; each is both the request and the limit."""

    cpu: str | None = None
    """Cores, such as `4` or `500m`. None: those that `Cpu` names, otherwise no limit."""
    memory: str | None = None
    """Such as `16Gi`; includes the shared memory. None: 2Gi for a job without an accelerator and without
    `shared_memory`, otherwise no limit."""
    shared_memory: str | None = None
    """The size of `/dev/shm`. None: up to the memory limit, or half of the machine's memory."""

    def __post_init__(self) -> None:
        amounts = {}
        for name in ("cpu", "memory", "shared_memory"):
            text = getattr(self, name)
            amount = None if text is None else parse_quantity(text)
            if text is not None and (amount is None or amount <= 0):
                raise InvalidRequestError(
                    f"{name}={text!r} is not an amount that Kubernetes accepts.",
                    hint=f"Write for example {'4 or 500m' if name == 'cpu' else '16Gi'}.",
                )
            amounts[name] = amount
        memory, shared = amounts["memory"], amounts["shared_memory"]
        if memory is not None and shared is not None and shared > memory:
            raise InvalidRequestError(
                f"shared_memory={self.shared_memory!r} is more than memory={self.memory!r}.",
                hint="Shared memory counts as memory: raise memory, or lower shared_memory.",
            )


@dataclass(frozen=True, kw_only=True)
class NodeFolder:
    """A folder of the node's disk that its pods share; made if it is missing, by root."""

    name: str
    """The name of the volume."""
    source: str
    """The absolute path on the node."""
    path: str
    """The absolute path in the container."""


@dataclass(frozen=True, kw_only=True)
class PodSpec:
    """One host of a job."""

    job_id: str
    accelerator: Accelerator
    image: str
    command: tuple[str, ...]
    """Program and arguments; nothing in them is expanded."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables; nothing in them is expanded. Everyone who may read pods can read them."""
    environment_secret: str | None = None
    """A Secret whose keys become variables. If `environment` has the same name, its value is used."""
    field_variables: Mapping[str, str] = field(default_factory=dict)
    """Variables whose values are fields of the pod itself, such as `metadata.name`."""
    secret_variables: tuple[SecretVariable, ...] = ()
    """Single variables from Secrets, such as the signing key."""
    files: tuple[MountedFile, ...] = ()
    """Mounted files, such as the runner."""
    resources: Resources = Resources()
    workspace: str = WORKSPACE
    """The path of an empty writable folder, which is removed with the pod."""
    grace: timedelta = timedelta(seconds=30)
    """Time between SIGTERM and SIGKILL."""
    service_account: str | None = None
    """None: the namespace's default."""
    volumes: PodVolumes | None = None
    node_folders: tuple[NodeFolder, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    """The user's own labels."""
    app: str = APP_VALUE
    """The value of the label `app`."""
    subdomain: str | None = None
    """The headless Service that gives the pod a name in DNS."""
    pool: Pool | None = None
    """The pool whose machines it runs on. None: any that its accelerator names."""
    topology: str | None = None
    """The label of nodes whose value all pods of the job share. None: they run on any nodes."""
    about: Mapping[str, str] = field(default_factory=dict)
    """Facts such as the function's name: labels, or annotations if they cannot be values of labels."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """The user's own fields of the pod template, merged into it last; see `manifests.overrides`."""


def pod_metadata(pod: PodSpec, role: str | None = None) -> Manifest:
    """Render the metadata of everything that belongs to the job of *pod*; *role*: of a pod with this role.

    The entries of `about` that cannot be labels are annotations.
    """
    labels, annotations = labels_and_annotations(pod.about)
    labels = {**pod.labels, **labels}
    labels |= standard_labels(pod.job_id, pod.accelerator.slug, pod.app)
    metadata: Manifest = {"labels": labels if role is None else {**labels, ROLE: role}}
    return metadata | ({"annotations": annotations} if annotations else {})


def common_fields(pod: PodSpec, restart: Literal["Never", "Always"]) -> Manifest:
    """Render what the pods of a job have in common, whether they run the function or not."""
    fields = {
        "restartPolicy": restart,
        # Otherwise the container gets environment variables for every Service of the namespace.
        "enableServiceLinks": False,
        # It names no user: an image may need root.
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
    }
    account = pod.service_account
    return fields | ({} if account is None else {"serviceAccountName": account})


def pod_template(
    pod: PodSpec,
    *,
    placement: Placement | None = None,
    sidecars: Sequence[Manifest] = (),
    restart: Literal["Never", "Always"] = "Never",
) -> Manifest:
    """Render *pod* as the template of a workload.

    Args:
        pod: The pod.
        placement: Where it runs. None: on a machine that its accelerator names.
        sidecars: Containers that start before its own and are stopped after it.
        restart: Whether its containers are started again after they have ended.

    Raises:
        InvalidRequestError: An override is not valid.
    """
    placement = placement or place_of(pod)
    spec: Manifest = {
        **common_fields(pod, restart),
        "terminationGracePeriodSeconds": int(pod.grace.total_seconds()),
        "containers": [_container(pod, placement.resources)],
        "volumes": [volume for volume, _ in _volumes(pod)],
    }
    if pod.volumes:
        spec["volumes"] += pod.volumes.volumes
    if sidecars:
        spec["initContainers"] = list(sidecars)
    if pod.subdomain is not None:
        spec["subdomain"] = pod.subdomain
    if placement.selector:
        spec["nodeSelector"] = placement.selector
    if placement.tolerations:
        spec["tolerations"] = placement.tolerations
    if pod.topology is not None:
        # The scheduler accepts the first pod, because the term selects itself.
        same_job = {"labelSelector": {"matchLabels": {JOB_ID: pod.job_id}}}
        term = {**same_job, "topologyKey": pod.topology}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        spec["affinity"] = {"podAffinity": required}
    metadata = pod_metadata(pod, HOST_ROLE)
    if pod.volumes:
        metadata.setdefault("annotations", {})[ANNOTATION] = "true"
    return merged({"metadata": metadata, "spec": spec}, pod.overrides)


def place_of(pod: PodSpec, *, exact: bool = False) -> Placement:
    """Return the placement of *pod*; *exact*: not on machines that stand in for its accelerator."""
    if pod.pool is None:
        return placement_of(pod.accelerator)
    return placement_in(pod.pool, pod.accelerator, exact=exact)


def _container(pod: PodSpec, accelerator: Mapping[str, str]) -> Manifest:
    container: Manifest = {
        "name": CONTAINER,
        "image": pod.image,
        "command": [literal(each) for each in pod.command],
        "env": list(_environment(pod)),
        "resources": _resources(pod, accelerator),
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": _CAPABILITIES},
        # If the container fails without a message, the end of its log becomes the message.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            *({"name": volume["name"], **mount} for volume, mount in _volumes(pod)),
            *(pod.volumes.volume_mounts if pod.volumes else ()),
        ],
    }
    if pod.environment_secret is not None:
        container["envFrom"] = [{"secretRef": {"name": pod.environment_secret}}]
    return container


def literal(text: str) -> str:
    """Escape *text*, because Kubernetes expands `$(NAME)`."""
    return text.replace("$", "$$")


def _environment(pod: PodSpec) -> Iterator[Manifest]:
    for each in pod.secret_variables:
        source = {"name": each.secret, "key": each.key}
        yield {"name": each.variable, "valueFrom": {"secretKeyRef": source}}
    for name, path in pod.field_variables.items():
        yield {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
    for name, value in pod.environment.items():
        yield {"name": name, "value": literal(value)}


def _resources(pod: PodSpec, accelerator: Mapping[str, str]) -> Manifest:
    given = {"cpu": pod.resources.cpu, "memory": pod.resources.memory}
    limits = {name: text for name, text in given.items() if text is not None}
    if isinstance(pod.accelerator, Cpu):
        # The node is shared with others: memory is limited. Cores beyond the request are only lent.
        if pod.accelerator.cores is not None:
            limits.setdefault("cpu", str(pod.accelerator.cores))
        if pod.resources.shared_memory is None:
            limits.setdefault("memory", _DEFAULT_MEMORY)
        requests = {"cpu": _DEFAULT_CPU, "memory": _DEFAULT_MEMORY, **limits}
    else:
        requests = {**_LEAST, **limits}
    return {"requests": {**requests, **accelerator}, "limits": {**limits, **accelerator}}


def _volumes(pod: PodSpec) -> Iterator[tuple[Manifest, Manifest]]:
    """Yield the pod's own volumes, each with its mount, which lacks the volume's name."""
    yield {"name": "workspace", "emptyDir": {}}, {"mountPath": pod.workspace}
    shared: Manifest = {"medium": "Memory"}
    if pod.resources.shared_memory is not None:
        shared["sizeLimit"] = pod.resources.shared_memory
    yield {"name": "shared-memory", "emptyDir": shared}, {"mountPath": _SHARED_MEMORY}
    for number, file in enumerate(pod.files):
        content = {"name": file.config_map, "items": [{"key": file.key, "path": file.key}]}
        mount = {"mountPath": file.path, "subPath": file.key, "readOnly": True}
        yield {"name": f"file-{number}", "configMap": content}, mount
    for folder in pod.node_folders:
        place = {"path": folder.source, "type": "DirectoryOrCreate"}
        yield {"name": folder.name, "hostPath": place}, {"mountPath": folder.path}
