"""Text such as `tpu-v5e-8:spot` or `gpu-a100x4` → a frozen accelerator."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from math import prod
from typing import Final

from kinetic_k8s.accelerators.gpus import (
    DEFAULT_GPU,
    GPU_BY_NAME,
    GPU_TYPES,
    MOST_CAPABLE_GPUS,
    GpuType,
)
from kinetic_k8s.accelerators.tpus import (
    DEFAULT_TPU,
    MOST_CAPABLE_TPUS,
    TPU_BY_NAME,
    TPU_GENERATIONS,
    TpuGeneration,
    all_slices,
    dimensions,
    slices_by_chips,
)
from kinetic_k8s.accelerators.types import Accelerator, Cpu, Gpu, Tpu, counted, describe
from kinetic_k8s.errors import UnknownAcceleratorError

_FAMILY: Final = re.compile(r"(tpu|gpu)[-:](.*)")
_CORES: Final = re.compile(r"cpu[-:]([0-9]{1,4})")
# Bounded, because a number of thousands of digits is slow to parse and never valid.
_COUNT: Final = re.compile(r"[0-9]{1,6}")
_TOPOLOGY: Final = re.compile(r"[0-9]{1,4}(x[0-9]{1,4}){1,2}")
_TIMES: Final = re.compile(r"(.+)x([0-9]{1,6})")
_MISCOUNTED: Final = re.compile(r"(.+)[-:]([0-9]{1,6})")
_SHOWN: Final = 8
"""How many alternatives a hint lists."""


def parse_accelerator(text: str, *, spot: bool = False) -> Accelerator:
    """Return the accelerator that *text* names.

    Case does not matter, and the prefixes `tpu-`, `tpu:`, `gpu-` and `gpu:` may be left out.

    - `v5e`, `l4`: the type, in its default size. `tpu`, `gpu`: the default type.
    - `v5e-8`: 8 chips, in every generation; if several shapes have 8, the most cube-like one.
      `v5e-2x4`, `v5p-4x4x8`: this topology. If a slice exists on one machine and on several, the one
      machine.
    - `l4x4`: 4 GPUs. `tpu:8`, `gpu:4`: this number of the most capable type that offers it.
    - `cpu`, `cpu:8`: no accelerator, 8 cores.
    - `…:spot` at the end, or *spot*: preemptible machines.

    Raises:
        UnknownAcceleratorError: There is no such accelerator; the hint lists valid or similar names.
    """
    written = str(text).strip()
    name = written.lower()
    if name.endswith(":spot"):
        name, spot = name.removesuffix(":spot"), True
    found = _parse(name, written)
    return replace(found, spot=True) if spot else found


def _parse(name: str, written: str) -> Accelerator:
    if name == "cpu":
        return Cpu()
    if cores := _CORES.fullmatch(name):
        if int(cores[1]) == 0:
            raise UnknownAcceleratorError(
                f"{written!r} requests no cores.", hint="Write cpu, or cpu:N with N ≥ 1."
            )
        return Cpu(int(cores[1]))
    if name == "tpu":
        return _tpu(TPU_BY_NAME[DEFAULT_TPU], None, written)
    if name == "gpu":
        return _gpu(GPU_BY_NAME[DEFAULT_GPU], None)
    family, rest = None, name
    if prefixed := _FAMILY.fullmatch(name):
        family, rest = prefixed[1], prefixed[2]
        if _COUNT.fullmatch(rest):
            return _most_capable(family, int(rest))
    generation, _, size = rest.rpartition("-")
    if family != "gpu" and rest in TPU_BY_NAME:
        return _tpu(TPU_BY_NAME[rest], None, written)
    if family != "gpu" and generation in TPU_BY_NAME:
        return _tpu(TPU_BY_NAME[generation], size, written)
    if family != "tpu":
        if gpu_type := GPU_BY_NAME.get(rest):
            return _gpu(gpu_type, None)
        if (times := _TIMES.fullmatch(rest)) and (gpu_type := GPU_BY_NAME.get(times[1])):
            return _gpu(gpu_type, int(times[2]))
        if (wrong := _MISCOUNTED.fullmatch(rest)) and (gpu_type := GPU_BY_NAME.get(wrong[1])):
            raise UnknownAcceleratorError(
                f"{written!r} is not the form for several GPUs.",
                hint=f"Write {gpu_type.name}x{wrong[2]}.",
            )
    raise _unknown(family, rest, written)


def _tpu(generation: TpuGeneration, size: str | None, written: str) -> Tpu:
    if size is None:
        return slices_by_chips(generation.name)[generation.default_chips]
    if _TOPOLOGY.fullmatch(size):
        shapes = all_slices(generation.name)
        if size in shapes:
            return shapes[size]
        raise UnknownAcceleratorError(
            f"TPU {generation.name} has no slice of topology {size}.",
            hint=_there_are(_nearest(prod(dimensions(size)), shapes.values())),
        )
    if _COUNT.fullmatch(size):
        chips = int(size)
        if generation.boards and chips in generation.boards:
            return all_slices(generation.name)[generation.boards[chips]]
        slices = slices_by_chips(generation.name)
        if chips not in slices:
            raise UnknownAcceleratorError(
                f"TPU {generation.name} has no slice of {counted(chips, 'chip')} "
                "(the number counts chips, in every generation).",
                hint=_there_are(_nearest(chips, slices.values())),
            )
        return slices[chips]
    raise UnknownAcceleratorError(
        f"{written!r} is not a size of a TPU {generation.name} slice.",
        hint=f"Write {generation.name}-CHIPS or {generation.name}-TOPOLOGY. "
        + _there_are(_nearest(generation.default_chips, slices_by_chips(generation.name).values())),
    )


def _gpu(gpu_type: GpuType, count: int | None) -> Gpu:
    count = min(gpu_type.machines) if count is None else count
    if count not in gpu_type.machines:
        raise UnknownAcceleratorError(
            f"No machine has {count} × {gpu_type.name}.",
            hint=_there_are(gpu_type.of(each) for each in sorted(gpu_type.machines)),
        )
    return gpu_type.of(count)


def _most_capable(family: str, count: int) -> Tpu | Gpu:
    if family == "tpu":
        every: dict[int, Tpu] = {}
        for name in reversed(MOST_CAPABLE_TPUS):
            every |= slices_by_chips(name)
        if count in every:
            return every[count]
        raise UnknownAcceleratorError(
            f"No TPU slice has {counted(count, 'chip')}.",
            hint=_there_are(_nearest(count, every.values())),
        )
    for name in MOST_CAPABLE_GPUS:
        gpu_type = GPU_BY_NAME[name]
        if count in gpu_type.machines:
            return gpu_type.of(count)
    counts = sorted({each for gpu in GPU_TYPES for each in gpu.machines})
    raise UnknownAcceleratorError(
        f"No machine has {counted(count, 'GPU')}.",
        hint=f"There are machines with {', '.join(map(str, counts))}.",
    )


def _unknown(family: str | None, rest: str, written: str) -> UnknownAcceleratorError:
    """Return the error for a name that nothing has, with similar ones."""
    import difflib

    names = [
        *(name for gpu in GPU_TYPES if family != "tpu" for name in gpu.names),
        *(name for tpu in TPU_GENERATIONS if family != "gpu" for name in tpu.names),
        *([] if family else ["cpu", "tpu", "gpu"]),
    ]
    # Compare the text without its size too: `v5x` is more similar to `v5e` than `v5x-8` is.
    near = [
        match
        for guess in (rest, re.split(r"[-:x][0-9]", rest, maxsplit=1)[0])
        for match in difflib.get_close_matches(guess[:40], names, n=3, cutoff=0.5)
    ]
    other = GPU_BY_NAME.get(rest) if family == "tpu" else TPU_BY_NAME.get(rest.partition("-")[0])
    if other is not None:
        near.insert(0, rest)
    shown = written if len(written) <= 60 else f"{written[:59]}…"
    return UnknownAcceleratorError(
        f"There is no accelerator {shown!r}.",
        hint=f"Did you mean {' or '.join(dict.fromkeys(near))}? " * bool(near)
        + "`kinetic accelerators` lists all names.",
    )


def _nearest(chips: int, slices: Iterable[Tpu]) -> list[Tpu]:
    """Return the slices whose number of chips is nearest to *chips*, in order of size."""
    near = sorted(slices, key=lambda tpu: abs(tpu.chips - chips))[:_SHOWN]
    return sorted(near, key=lambda tpu: tpu.chips)


def _there_are(accelerators: Iterable[Tpu | Gpu]) -> str:
    return "There are:" + "".join(f"\n  {describe(each)}" for each in accelerators)
