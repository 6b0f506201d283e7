"""Accelerators: text that a user writes, resolved to machines of GKE."""

from kinetic_k8s.accelerators.catalogue import catalogue, names_of
from kinetic_k8s.accelerators.parse import parse_accelerator
from kinetic_k8s.accelerators.types import Accelerator, Cpu, Gpu, Tpu, describe

__all__ = [
    "Accelerator",
    "Cpu",
    "Gpu",
    "Tpu",
    "catalogue",
    "describe",
    "names_of",
    "parse_accelerator",
]
