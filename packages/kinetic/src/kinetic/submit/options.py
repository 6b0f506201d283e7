"""The arguments of `kinetic.run`, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from kinetic.errors import InvalidRequestError
from kinetic.quantities import parse_count, parse_cpu, parse_memory, parse_timeout
from kinetic.submit.images import ContainerImage, parse_container_image
from kinetic_payload.frozen import frozen

if TYPE_CHECKING:
    from kinetic.data import Data
    from kinetic_k8s.accelerators import Accelerator


@frozen(kw_only=True)
class RunOptions:
    """The arguments of `kinetic.run`, checked and parsed."""

    given: Mapping[str, Any]
    """The arguments that differ from their defaults, as they were passed."""
    overrides: Mapping[str, str | None]
    """The arguments that take precedence over settings of the same names."""
    accelerator: Accelerator
    image: ContainerImage
    capture: tuple[str, ...]
    volumes: Mapping[str, Data]
    """By normalised mount path."""
    debug: bool
    timeout: float | None
    """Seconds that the function may take in one attempt; None means no limit."""
    retries: int
    """How many more attempts may be made after failures."""
    preemptions: int | None
    """How many more attempts may be made after disruptions; None means no limit."""
    cpu: float | None
    """Cores of each host; None lets the backend choose, as for memory."""
    memory: int | None
    """Bytes."""
    shared_memory: int | None
    """Bytes of `/dev/shm`, which are part of `memory`."""
    labels: Mapping[str, str]
    pod_overrides: Mapping[str, Any] | None
    """None: those of the profile."""


def check_options(
    *,
    accelerator: str = "tpu-v5e-1",
    container_image: str | None = None,
    base_image_repo: str | None = None,
    zone: str | None = None,
    project: str | None = None,
    capture_env_vars: list[str] | None = None,
    cluster: str | None = None,
    backend: str | None = None,
    namespace: str | None = None,
    volumes: dict[str, Data] | None = None,
    spot: bool = False,
    output_dir: str | None = None,
    debug: bool = False,
    timeout: float | timedelta | None = None,
    retries: int = 0,
    preemptions: int | None = None,
    cpu: float | str | None = None,
    memory: int | str | None = None,
    shared_memory: int | str | None = None,
    labels: dict[str, str] | None = None,
    pod_overrides: dict[str, Any] | None = None,
) -> RunOptions:
    """Parse the arguments of `kinetic.run`; refuse invalid values and combinations.

    Raises:
        InvalidRequestError: An argument is invalid; the hint says what to write instead.
    """
    arguments = dict(locals())
    from kinetic.mount_paths import check_volumes
    from kinetic.submit.capture import check_patterns
    from kinetic_k8s.accelerators import parse_accelerator
    from kinetic_k8s.manifests.labels import check_labels

    _check_types(arguments)
    check_labels(labels or {})
    defaults = check_options.__kwdefaults__ or {}
    parsed = parse_accelerator(accelerator)
    options = RunOptions(
        accelerator=replace(parsed, spot=True) if spot else parsed,
        image=parse_container_image(container_image),
        overrides={name: arguments[name] for name in _SETTINGS},
        capture=check_patterns(capture_env_vars),
        volumes=check_volumes(volumes or {}),
        debug=debug,
        timeout=parse_timeout(timeout),
        retries=parse_count("retries", retries),
        preemptions=None if preemptions is None else parse_count("preemptions", preemptions),
        cpu=parse_cpu(cpu),
        memory=parse_memory("memory", memory),
        shared_memory=parse_memory("shared_memory", shared_memory),
        labels=dict(labels or {}),
        pod_overrides=None if pod_overrides is None else check_pod_overrides(pod_overrides),
        given={name: value for name, value in arguments.items() if value != defaults[name]},
    )
    _check_combinations(options)
    return options


_SETTINGS: Final = (
    "base_image_repo",
    "zone",
    "project",
    "cluster",
    "backend",
    "namespace",
    "output_dir",
)
"""The arguments that override settings of the same names; None overrides nothing."""


def _check_types(arguments: Mapping[str, Any]) -> None:
    accelerator = arguments["accelerator"]
    if not isinstance(accelerator, str):
        raise InvalidRequestError(
            f"accelerator={accelerator!r} is not text.",
            hint="Write a name such as 'tpu-v5litepod-4', 'gpu-l4' or 'cpu'.",
        )
    for name in _SETTINGS:
        value = arguments[name]
        if not isinstance(value, str | None):
            raise InvalidRequestError(f"{name}={value!r} is not text.", hint="Give text or None.")
    for name in ("spot", "debug"):
        value = arguments[name]
        if not isinstance(value, bool):
            raise InvalidRequestError(
                f"{name}={value!r} is neither True nor False.", hint="Give one of them."
            )
    for name in ("volumes", "labels"):
        value = arguments[name]
        if value is not None and not isinstance(value, Mapping):
            raise InvalidRequestError(
                f"{name}={value!r} is not a dict.",
                hint="Write volumes={'/data': kinetic.Data(...)}."
                if name == "volumes"
                else "Write labels={'team': 'vision'}.",
            )


def _check_combinations(options: RunOptions) -> None:
    if options.debug and options.retries:
        raise InvalidRequestError(
            "debug=True and retries contradict each other: every retry would wait for a debugger.",
            hint="Leave retries out while debugging.",
        )
    if options.overrides["base_image_repo"] and options.image.mode != "prebuilt":
        raise InvalidRequestError(
            "base_image_repo names the repository of prebuilt images, and this job does not use one.",
            hint="Add container_image='prebuilt', or leave base_image_repo out.",
        )
    memory, shared = options.memory, options.shared_memory
    if memory is not None and shared is not None and shared > memory:
        raise InvalidRequestError(
            f"shared_memory={options.given['shared_memory']!r} is more than "
            f"memory={options.given['memory']!r}, of which it is a part.",
            hint="Raise memory, or lower shared_memory.",
        )


def check_pod_overrides(value: object) -> dict[str, Any]:
    """Return a copy of *value*, parts of a pod template that are merged into that of a job's pods.

    Raises:
        InvalidRequestError: It is not JSON, or sets a field that belongs to Kinetic.
    """
    if not isinstance(value, dict):
        raise InvalidRequestError(
            f"pod_overrides={value!r} is not a dict.",
            hint="Write pod_overrides={'spec': {'priorityClassName': 'batch'}}.",
        )
    from kinetic_k8s.manifests.overrides import check_overrides

    return check_overrides(value)


def check_size(options: RunOptions) -> None:
    """Refuse more cores or memory than any machine with the accelerator has.

    Raises:
        InvalidRequestError: The message names the machine and its size.
    """
    from kinetic_k8s.accelerators.catalogue import largest_machine

    machine = largest_machine(options.accelerator)
    if machine is None:
        return
    for name, amount, most, unit in (
        ("cpu", options.cpu, machine.cores, "cores"),
        ("memory", options.memory, machine.memory, "GiB"),
        ("shared_memory", options.shared_memory, machine.memory, "GiB"),
    ):
        if amount is not None and most is not None and amount > most:
            size = most if name == "cpu" else most // 1024**3
            raise InvalidRequestError(
                f"{name}={options.given[name]!r} is more than the {size} {unit} of "
                f"{machine.machine_type}, the largest machine with {options.accelerator.canonical}.",
                hint=f"Lower {name}, or leave it out. The system of the machine needs a part of it, too.",
            )
