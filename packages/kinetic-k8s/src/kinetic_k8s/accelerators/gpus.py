"""The GPUs of GKE: names, labels, counts and machines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kinetic_k8s.accelerators.types import Gpu
from kinetic_payload.frozen import frozen


@frozen(kw_only=True)
class GpuType:
    """One type of GPU, and the machines that have it."""

    name: str
    label: str
    machines: Mapping[int, tuple[str, ...]]
    """Number of GPUs → machine types that have so many, the smallest (the default) first."""
    aliases: tuple[str, ...] = ()
    arm64: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """All names that a user may write; they include the label, with and without `nvidia-`."""
        return tuple(
            dict.fromkeys(
                (self.name, *self.aliases, self.label, self.label.removeprefix("nvidia-"))
            )
        )

    def of(self, count: int) -> Gpu:
        """Return *count* GPUs of this type; *count* must be in `machines`."""
        return Gpu(
            name=self.name,
            label=self.label,
            count=count,
            machine_type=self.machines[count][0],
            arm64=self.arm64,
        )


def _n1(*sizes: int) -> tuple[str, ...]:
    return tuple(f"n1-standard-{size}" for size in sizes)


# https://cloud.google.com/compute/docs/gpus and .../kubernetes-engine/docs/concepts/gpus.
# N1 is the only family to which GPUs are attached rather than built in. Its tuples end at the
# number of vCPUs allowed for that many GPUs (T4: 48, 48, 96; V100: 12, 24, 48, 96).
GPU_TYPES: Final = (
    GpuType(
        name="l4",
        label="nvidia-l4",
        machines={
            # A single L4 is available on machines with different amounts of cores and memory.
            1: (
                "g2-standard-4",
                "g2-standard-8",
                "g2-standard-12",
                "g2-standard-16",
                "g2-standard-32",
            ),
            2: ("g2-standard-24",),
            4: ("g2-standard-48",),
            8: ("g2-standard-96",),
        },
    ),
    GpuType(
        name="t4",
        label="nvidia-tesla-t4",
        machines={1: _n1(4, 8, 16, 32), 2: _n1(8, 16, 32), 4: _n1(16, 32, 64, 96)},
    ),
    GpuType(
        name="v100",
        label="nvidia-tesla-v100",
        machines={1: _n1(8), 2: _n1(16), 4: _n1(32), 8: _n1(64, 96)},
    ),
    *(
        GpuType(
            name=name, label=f"nvidia-tesla-{name}", machines={1: _n1(4), 2: _n1(8), 4: _n1(16)}
        )
        for name in ("p100", "p4")
    ),
    GpuType(
        name="a100",
        label="nvidia-tesla-a100",
        aliases=("a100-40gb",),
        machines={
            **{count: (f"a2-highgpu-{count}g",) for count in (1, 2, 4, 8)},
            16: ("a2-megagpu-16g",),
        },
    ),
    GpuType(
        name="a100-80gb",
        label="nvidia-a100-80gb",
        # Unlike for the 40 GB model, there is no machine with sixteen GPUs.
        machines={count: (f"a2-ultragpu-{count}g",) for count in (1, 2, 4, 8)},
    ),
    GpuType(
        name="h100",
        label="nvidia-h100-80gb",
        # According to Google, fewer than eight are available as Spot or Flex-start only.
        machines={count: (f"a3-highgpu-{count}g",) for count in (1, 2, 4, 8)},
    ),
    GpuType(name="h100-mega", label="nvidia-h100-mega-80gb", machines={8: ("a3-megagpu-8g",)}),
    GpuType(name="h200", label="nvidia-h200-141gb", machines={8: ("a3-ultragpu-8g",)}),
    GpuType(name="b200", label="nvidia-b200", machines={8: ("a4-highgpu-8g",)}),
    GpuType(name="gb200", label="nvidia-gb200", machines={4: ("a4x-highgpu-4g",)}, arm64=True),
    GpuType(name="gb300", label="nvidia-gb300", machines={4: ("a4x-maxgpu-4g-metal",)}, arm64=True),
    GpuType(
        name="rtx-pro-6000",
        label="nvidia-rtx-pro-6000",
        machines={count: (f"g4-standard-{48 * count}",) for count in (1, 2, 4, 8)},
    ),
)

GPU_BY_NAME: Final = {name: gpu for gpu in GPU_TYPES for name in gpu.names}

DEFAULT_GPU: Final = "l4"
"""The type that `gpu` alone means."""

MOST_CAPABLE_GPUS: Final = ("h100", "a100-80gb", "a100", "l4", "v100", "t4", "p100", "p4")
"""The order in which `gpu:N` looks for a type that offers N."""
