"""All accelerators, and the cores and the memory of their machines where they are known."""

from __future__ import annotations

from typing import Final

from kinetic_k8s.accelerators.gpus import GPU_BY_NAME, GPU_TYPES
from kinetic_k8s.accelerators.tpus import TPU_BY_NAME, TPU_GENERATIONS, all_slices, documented
from kinetic_k8s.accelerators.types import Accelerator, Cpu, Gpu, Tpu
from kinetic_payload.frozen import frozen

_GIB: Final = 1024**3
_CORES_AND_GB: Final = {
    "a2-highgpu-1g": (12, 85),
    "a2-highgpu-2g": (24, 170),
    "a2-highgpu-4g": (48, 340),
    "a2-highgpu-8g": (96, 680),
    "a2-megagpu-16g": (96, 1360),
    "a2-ultragpu-1g": (12, 170),
    "a2-ultragpu-2g": (24, 340),
    "a2-ultragpu-4g": (48, 680),
    "a2-ultragpu-8g": (96, 1360),
    "a3-highgpu-1g": (26, 234),
    "a3-highgpu-2g": (52, 468),
    "a3-highgpu-4g": (104, 936),
    "a3-highgpu-8g": (208, 1872),
    "a3-megagpu-8g": (208, 1872),
    "a3-ultragpu-8g": (224, 2952),
    "a4-highgpu-8g": (224, 3968),
    "g2-standard-24": (24, 96),
    "g2-standard-32": (32, 128),
    "g2-standard-48": (48, 192),
    "g2-standard-96": (96, 384),
    "g4-standard-48": (48, 180),
    "g4-standard-96": (96, 360),
    "g4-standard-192": (192, 720),
    "g4-standard-384": (384, 1440),
}
"""https://cloud.google.com/compute/docs/accelerator-optimized-machines"""


def catalogue(*, every_shape: bool = False) -> tuple[Accelerator, ...]:
    """Return every accelerator: the processor, GPUs by type and count, TPUs by generation and size.

    Large TPU v4, v5p and 7x slices have hundreds of shapes. Without *every_shape*, only the shapes in
    Google's own table are returned.
    """
    gpus = [gpu.of(count) for gpu in GPU_TYPES for count in sorted(gpu.machines)]
    tpus = [
        tpu
        for generation in TPU_GENERATIONS
        for topology, tpu in all_slices(generation.name).items()
        if every_shape or topology in documented(generation)
    ]
    return (Cpu(), *gpus, *tpus)


def names_of(accelerator: Accelerator) -> tuple[str, ...]:
    """Return the names of *accelerator*, its own first; the last ones have `tpu-` or `gpu-` in front."""
    name = str(accelerator)
    match accelerator:
        case Gpu(name=kind):
            others = GPU_BY_NAME[kind].aliases
        case Tpu(generation=kind):
            others = TPU_BY_NAME[kind].aliases
        case _:
            return (name,)
    short = (name, *(other + name.removeprefix(kind) for other in others))
    return (*short, *(f"{accelerator.kind}-{each}" for each in short))


@frozen(kw_only=True)
class MachineSize:
    """The size of a machine; a pod gets a little less, because the system of the machine needs some."""

    machine_type: str
    cores: int
    memory: int | None = None
    """Bytes; None if it is not known."""


def largest_machine(accelerator: Accelerator) -> MachineSize | None:
    """Return the largest machine with *accelerator*; None if its size is not known.

    N1 machines, to which GPUs are attached, have no fixed size; that of A4X machines is not known here. The
    numbers are those of
    https://cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus and
    https://cloud.google.com/compute/docs/accelerator-optimized-machines.
    """
    match accelerator:
        case Tpu():
            found = TPU_BY_NAME[accelerator.generation]
            machine = found.single_host.get(accelerator.topology) or found.worker
            return MachineSize(
                machine_type=machine.name, cores=machine.vcpus, memory=machine.memory_gb * _GIB
            )
        case Gpu():
            name = GPU_BY_NAME[accelerator.name].machines[accelerator.count][-1]
            if name not in _CORES_AND_GB:
                return None
            cores, gigabytes = _CORES_AND_GB[name]
            return MachineSize(machine_type=name, cores=cores, memory=gigabytes * _GIB)
        case Cpu():
            return None
