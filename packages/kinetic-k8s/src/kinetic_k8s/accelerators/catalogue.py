"""The catalogue of all accelerators, for lists of them."""

from __future__ import annotations

from kinetic_k8s.accelerators.gpus import GPU_TYPES
from kinetic_k8s.accelerators.tpus import TPU_GENERATIONS, all_slices, documented
from kinetic_k8s.accelerators.types import Accelerator, Cpu


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
