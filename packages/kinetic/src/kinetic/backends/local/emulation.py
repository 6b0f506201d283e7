"""Emulation of a slice on a laptop: how many processes, with how many virtual devices each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Final, Literal

from kinetic.errors import InvalidRequestError
from kinetic_payload.frozen import frozen

if TYPE_CHECKING:
    from kinetic_k8s.accelerators import Accelerator

Emulated = Literal["gke", "pathways"]
"""The backend whose semantics a local job follows."""

MOST_DEVICES: Final = 512
"""Most devices of one process. JAX needs 5 s and 0.8 GB for them; both grow with the number."""
MOST_PROCESSES: Final = 64
"""Most processes of one job: enough for a whole v5e or v6e pod."""

_SPARE_THREADS: Final = 64
"""Additional threads of XLA's pool, whose size is `NPROC`, else the number of cores or devices.

With one thread for each device and fewer cores than devices, a thread with other work blocks a collective
for ever: 16 devices on 2 cores aborted with "Expected 16 threads to join the rendezvous"."""
_DEVICE_COUNT: Final = "--xla_force_host_platform_device_count"


@frozen(kw_only=True)
class Shape:
    """The hosts and devices that a local job shows to its function."""

    backend: Emulated
    hosts: int
    """How many processes run the function, joined by `jax.distributed` if more than one."""
    devices_per_host: int
    """How many virtual devices JAX sees in each."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that set it up; `merge` adds the variables that the user captured."""


def shape_of(accelerator: Accelerator, backend: Emulated | None = None) -> Shape:
    """Decide how *accelerator* is emulated under the semantics of *backend*.

    None means the backend that a cluster would choose: `pathways` for a slice of several hosts, else
    `gke`. Under `pathways` one process sees all devices; under `gke` there is one process for each host.
    Each GPU becomes a device. A CPU is one device, as JAX has it on a cluster too; the N of `cpu:N`
    is a request for cores and has no effect here.

    Raises:
        InvalidRequestError: The slice is too large to be emulated, or *backend* cannot run it.
    """
    if backend == "pathways" and accelerator.kind != "tpu":
        raise InvalidRequestError(
            f"Pathways supports TPU slices only; got {accelerator.canonical}.",
            hint="Leave the backend out, or use a TPU.",
        )
    chosen: Emulated = backend or ("pathways" if accelerator.multi_host else "gke")
    hosts = accelerator.hosts if chosen == "gke" else 1
    devices = accelerator.devices // hosts
    if hosts > MOST_PROCESSES or devices > MOST_DEVICES:
        from kinetic_k8s.accelerators import describe

        needed, most = (
            (f"{hosts} processes", f"{MOST_PROCESSES} processes")
            if hosts > MOST_PROCESSES
            else (f"{devices} virtual devices in one process", f"{MOST_DEVICES}")
        )
        raise InvalidRequestError(
            f"A laptop cannot emulate {describe(accelerator)}: "
            f"that takes {needed}; the limit is {most}.",
            hint="Try the same code on a smaller slice, such as "
            f"{accelerator.canonical.partition('-')[0]}-16; "
            "code that is sharded over named mesh axes runs on it unchanged.",
        )
    return Shape(
        backend=chosen,
        hosts=hosts,
        devices_per_host=devices,
        environment={
            "KERAS_BACKEND": "jax",
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": f"{_DEVICE_COUNT}={devices}",
            "NPROC": str(devices + _SPARE_THREADS),
        },
    )


def merge(shape: Mapping[str, str], captured: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of *shape*, overridden by those that the user *captured*.

    `XLA_FLAGS` are joined, unless the user's flags set the number of devices.
    """
    joined = {**shape, **captured}
    shape_flags, user_flags = shape.get("XLA_FLAGS"), captured.get("XLA_FLAGS")
    if shape_flags and user_flags is not None:
        counted = any(flag.partition("=")[0] == _DEVICE_COUNT for flag in user_flags.split())
        joined["XLA_FLAGS"] = user_flags if counted else f"{user_flags} {shape_flags}".strip()
    return joined
