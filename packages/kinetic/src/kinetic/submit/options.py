"""The arguments of `kinetic.run`: as they were given, and checked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from kinetic.errors import InvalidRequestError
from kinetic.quantities import parse_count, parse_cpu, parse_memory, parse_timeout
from kinetic.submit.images import ContainerImage, parse_container_image

if TYPE_CHECKING:
    from kinetic.data import Data
    from kinetic_k8s.accelerators import Accelerator


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What stands between the parentheses of `@kinetic.run(...)`."""

    accelerator: str = "tpu-v5e-1"
    container_image: str | None = None
    base_image_repo: str | None = None
    zone: str | None = None
    project: str | None = None
    capture_env_vars: list[str] | None = None
    cluster: str | None = None
    backend: str | None = None
    namespace: str | None = None
    volumes: dict[str, Data] | None = None
    spot: bool = False
    output_dir: str | None = None
    debug: bool = False
    timeout: float | timedelta | None = None
    retries: int = 0
    preemptions: int | None = None
    cpu: float | str | None = None
    memory: int | str | None = None
    shared_memory: int | str | None = None
    labels: dict[str, str] | None = None

    def given(self) -> dict[str, Any]:
        """Return the arguments that are not the default."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {f.name: values[f.name] for f in fields(self) if values[f.name] != f.default}


@dataclass(frozen=True, kw_only=True)
class CheckedOptions:
    """The arguments of `kinetic.run` that no environment can change, parsed."""

    given: RunOptions
    accelerator: Accelerator
    image: ContainerImage
    capture: tuple[str, ...] = ()
    volumes: Mapping[str, Data] = field(default_factory=dict)
    spot: bool = False
    debug: bool = False
    timeout: float | None = None
    """Seconds of the function in one attempt."""
    retries: int = 0
    preemptions: int | None = None
    """None: as many as come."""
    cpu: float | None = None
    """Cores."""
    memory: int | None = None
    """Bytes of one host."""
    shared_memory: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


def check_options(options: RunOptions) -> CheckedOptions:
    """Parse *options* and refuse what cannot be right, or cannot be right together.

    Raises:
        InvalidRequestError: Something is wrong; the hint says what to write instead.
    """
    from kinetic.mount_paths import check_volumes
    from kinetic.submit.capture import check_patterns
    from kinetic_k8s.accelerators import parse_accelerator

    _check_types(options)
    accelerator = parse_accelerator(options.accelerator)
    checked = CheckedOptions(
        given=options,
        accelerator=accelerator,
        image=parse_container_image(options.container_image),
        capture=check_patterns(options.capture_env_vars),
        volumes=check_volumes(options.volumes or {}),
        spot=options.spot or accelerator.spot,
        debug=options.debug,
        timeout=parse_timeout(options.timeout),
        retries=parse_count("retries", options.retries),
        preemptions=None
        if options.preemptions is None
        else parse_count("preemptions", options.preemptions),
        cpu=parse_cpu(options.cpu),
        memory=parse_memory("memory", options.memory),
        shared_memory=parse_memory("shared_memory", options.shared_memory),
        labels=_checked_labels(options.labels or {}),
    )
    _check_together(checked)
    return checked


_TEXTS: Final = (
    "base_image_repo",
    "zone",
    "project",
    "cluster",
    "backend",
    "namespace",
    "output_dir",
)


def _check_types(options: RunOptions) -> None:
    if not isinstance(options.accelerator, str):
        raise InvalidRequestError(
            f"accelerator={options.accelerator!r} is not text.",
            hint="Write a name such as 'tpu-v5litepod-4', 'gpu-l4' or 'cpu'.",
        )
    for name in _TEXTS:
        value = getattr(options, name)
        if not isinstance(value, str | None):
            raise InvalidRequestError(f"{name}={value!r} is not text.", hint="Give text or None.")
    for name in ("spot", "debug"):
        value = getattr(options, name)
        if not isinstance(value, bool):
            raise InvalidRequestError(
                f"{name}={value!r} is neither True nor False.", hint="Give one of them."
            )
    for name in ("volumes", "labels"):
        value = getattr(options, name)
        if value is not None and not isinstance(value, Mapping):
            raise InvalidRequestError(
                f"{name}={value!r} is not a dict.",
                hint="Write volumes={'/data': kinetic.Data(...)}."
                if name == "volumes"
                else "Write labels={'team': 'vision'}.",
            )


def _check_together(checked: CheckedOptions) -> None:
    if checked.debug and checked.retries:
        raise InvalidRequestError(
            "debug=True and retries contradict each other: every retry would wait for a debugger.",
            hint="Leave retries out while debugging.",
        )
    if checked.given.base_image_repo and checked.image.mode != "prebuilt":
        raise InvalidRequestError(
            "base_image_repo says where prebuilt images lie, and this job uses none.",
            hint="Add container_image='prebuilt', or leave base_image_repo out.",
        )
    both = checked.memory is not None and checked.shared_memory is not None
    if both and (checked.shared_memory or 0) > (checked.memory or 0):
        raise InvalidRequestError(
            f"shared_memory={checked.given.shared_memory!r} is more than "
            f"memory={checked.given.memory!r}, of which it is a part.",
            hint="Raise memory, or lower shared_memory.",
        )


# https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set
_LABEL_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_LABEL_PREFIX: Final = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
_OURS: Final = ("app", "kinetic")


def _checked_labels(labels: Mapping[str, str]) -> dict[str, str]:
    for key, value in labels.items():
        prefix, slash, name = key.rpartition("/") if isinstance(key, str) else ("", "", "")
        fits = _LABEL_NAME.fullmatch(name) and (not slash or _LABEL_PREFIX.fullmatch(prefix))
        if not fits:
            raise InvalidRequestError(
                f"{key!r} cannot be the name of a label.",
                hint="Use up to 63 letters, digits, '-', '_' and '.', such as 'team'.",
            )
        if not isinstance(value, str) or (value and not _LABEL_NAME.fullmatch(value)):
            raise InvalidRequestError(
                f"{value!r} cannot be the value of the label {key!r}.",
                hint="Use text of up to 63 letters, digits, '-', '_' and '.'.",
            )
        if name in _OURS and not slash:
            raise InvalidRequestError(
                f"The label {key!r} is Kinetic's own.", hint="Take another name."
            )
    return dict(labels)
