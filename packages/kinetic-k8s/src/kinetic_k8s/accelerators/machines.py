"""The cores and the memory of the machines that have an accelerator, where they are known."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from kinetic_k8s.accelerators.gpus import GPU_BY_NAME
from kinetic_k8s.accelerators.tpus import machines_of
from kinetic_k8s.accelerators.types import Accelerator, Cpu, Gpu, Tpu

_GIB: Final = 1024**3
_SIZE_IN_NAME: Final = re.compile(r"(g[24])-standard-([0-9]+)")
_GB_OF_CORE: Final = {"g2": 4.0, "g4": 3.75}
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
}
"""https://cloud.google.com/compute/docs/accelerator-optimized-machines"""


@dataclass(frozen=True, kw_only=True)
class MachineSize:
    """The size of a machine; a pod gets a little less, because the system of the machine needs some."""

    machine_type: str
    cores: int
    memory: int | None = None
    """Bytes; None if it is not known."""


def largest_machine(accelerator: Accelerator) -> MachineSize | None:
    """Return the largest machine with *accelerator*; None if its size is not known.

    N1 machines, to which GPUs are attached, have no fixed size. The numbers are those of
    https://cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus and
    https://cloud.google.com/compute/docs/accelerator-optimized-machines.
    """
    match accelerator:
        case Tpu():
            machine = machines_of(accelerator.generation)[accelerator.machine_type]
            return MachineSize(
                machine_type=machine.name, cores=machine.vcpus, memory=machine.memory_gb * _GIB
            )
        case Gpu():
            name = GPU_BY_NAME[accelerator.name].machines[accelerator.count][-1]
            return _size_of(name)
        case Cpu():
            return None


def _size_of(machine_type: str) -> MachineSize | None:
    if found := _SIZE_IN_NAME.fullmatch(machine_type):
        cores = int(found[2])
        gigabytes = cores * _GB_OF_CORE[found[1]]
    elif machine_type in _CORES_AND_GB:
        cores, gigabytes = _CORES_AND_GB[machine_type]
    else:
        return None
    return MachineSize(machine_type=machine_type, cores=cores, memory=int(gigabytes * _GIB))
