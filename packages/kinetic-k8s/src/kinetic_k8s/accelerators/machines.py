"""The cores and the memory of the machines that have an accelerator, where they are known."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from kinetic_k8s.accelerators.gpus import GPU_BY_NAME
from kinetic_k8s.accelerators.tpus import machines_of
from kinetic_k8s.accelerators.types import Accelerator, Cpu, Gpu, Tpu

_GIB: Final = 1024**3
_CORES: Final = re.compile(r"g[24]-standard-([0-9]+)")


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
    https://cloud.google.com/compute/docs/gpus.
    """
    match accelerator:
        case Tpu():
            machine = machines_of(accelerator.generation)[accelerator.machine_type]
            return MachineSize(
                machine_type=machine.name, cores=machine.vcpus, memory=machine.memory_gb * _GIB
            )
        case Gpu():
            name = GPU_BY_NAME[accelerator.name].machines[accelerator.count][-1]
            found = _CORES.fullmatch(name)
            return MachineSize(machine_type=name, cores=int(found[1])) if found else None
        case Cpu():
            return None
