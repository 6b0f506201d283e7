"""The TPU slices of GKE: generations, topologies, machines and hosts."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from math import prod
from typing import Final

from kinetic_k8s.accelerators.types import Tpu
from kinetic_payload.frozen import frozen


@frozen()
class Machine:
    """A machine type with TPU chips."""

    name: str
    chips: int
    vcpus: int
    memory_gb: int


@frozen(kw_only=True)
class TpuGeneration:
    """One generation of TPUs: its slices, and their machines."""

    name: str
    label: str
    single_host: Mapping[str, Machine]
    """Topologies on one machine → that machine."""
    multi_host: tuple[str, ...]
    """The documented topologies on several machines, smallest first."""
    worker: Machine
    """The machine of slices with several hosts: always the one with four chips."""
    default_chips: int
    """The number of chips if only the name is written."""
    ceiling: int
    """The largest number of chips of one job."""
    aliases: tuple[str, ...] = ()
    multi_host_label: str | None = None
    """The label of slices with several hosts, if it is not `label`."""
    free_form: bool = False
    """Whether topologies AxBxC with A ≤ B ≤ C, all multiples of four, exist besides the documented ones."""
    boards: Mapping[int, str] | None = None
    """Numbers that stand for a topology although they are not its number of chips."""

    @property
    def names(self) -> tuple[str, ...]:
        """All names that a user may write, without `tpu-`."""
        return (self.name, *self.aliases)


# https://cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus. If a topology exists on one
# machine and on several (v5e and v6e 2x4), it means the one machine here.
_2D: Final = ("4x4", "4x8", "8x8", "8x16", "16x16")
_3D: Final = (
    "2x2x2",
    "2x2x4",
    "2x4x4",
    "4x4x4",
    "4x4x8",
    "4x8x8",
    "8x8x8",
    "8x8x16",
    "8x16x16",
    "16x16x16",
)

_CT3: Final = Machine("ct3-hightpu-4t", 4, 96, 340)
_CT3P: Final = Machine("ct3p-hightpu-4t", 4, 48, 340)
_CT4P: Final = Machine("ct4p-hightpu-4t", 4, 240, 407)
_CT5LP_1: Final = Machine("ct5lp-hightpu-1t", 1, 24, 48)
_CT5LP_4: Final = Machine("ct5lp-hightpu-4t", 4, 112, 192)
_CT5LP_8: Final = Machine("ct5lp-hightpu-8t", 8, 224, 384)
_CT5P: Final = Machine("ct5p-hightpu-4t", 4, 208, 448)
_CT6E_1: Final = Machine("ct6e-standard-1t", 1, 44, 176)
_CT6E_4: Final = Machine("ct6e-standard-4t", 4, 180, 720)
_CT6E_8: Final = Machine("ct6e-standard-8t", 8, 180, 1440)
_TPU7X_1: Final = Machine("tpu7x-standard-1t", 1, 56, 248)
_TPU7X_4: Final = Machine("tpu7x-standard-4t", 4, 224, 992)

TPU_GENERATIONS: Final = (
    TpuGeneration(
        name="v3",
        label="tpu-v3-device",
        # In this generation a single board and a part of a pod are different devices, with different labels.
        multi_host_label="tpu-v3-slice",
        single_host={"2x2": _CT3},
        multi_host=("4x4", "4x8", "8x8", "8x16", "16x16", "16x32", "32x32"),
        worker=_CT3P,
        default_chips=4,
        ceiling=1024,
        # No slice has eight chips: `v3-8` is the name of the board, whose four chips have eight cores.
        boards={8: "2x2"},
    ),
    TpuGeneration(
        name="v4",
        label="tpu-v4-podslice",
        single_host={"2x2x1": _CT4P},
        multi_host=_3D,
        worker=_CT4P,
        default_chips=4,
        ceiling=4096,
        free_form=True,
    ),
    TpuGeneration(
        name="v5litepod",
        label="tpu-v5-lite-podslice",
        aliases=("v5e",),
        single_host={"1x1": _CT5LP_1, "2x2": _CT5LP_4, "2x4": _CT5LP_8},
        multi_host=_2D,
        worker=_CT5LP_4,
        default_chips=4,
        ceiling=256,
    ),
    TpuGeneration(
        name="v5p",
        label="tpu-v5p-slice",
        single_host={"2x2x1": _CT5P},
        multi_host=_3D,
        worker=_CT5P,
        default_chips=8,
        # A pod has 8,960 chips; one job gets at most this many of them.
        ceiling=6144,
        free_form=True,
    ),
    TpuGeneration(
        name="v6e",
        label="tpu-v6e-slice",
        single_host={"1x1": _CT6E_1, "2x2": _CT6E_4, "2x4": _CT6E_8},
        multi_host=_2D,
        worker=_CT6E_4,
        default_chips=8,
        ceiling=256,
    ),
    TpuGeneration(
        name="tpu7x",
        label="tpu7x",
        aliases=("7x", "ironwood"),
        single_host={"1x1x1": _TPU7X_1, "2x2x1": _TPU7X_4},
        multi_host=_3D,
        worker=_TPU7X_4,
        default_chips=4,
        ceiling=9216,
        free_form=True,
    ),
)

TPU_BY_NAME: Final = {name: tpu for tpu in TPU_GENERATIONS for name in tpu.names}

DEFAULT_TPU: Final = "v5litepod"
"""The generation that `tpu` alone means."""

MOST_CAPABLE_TPUS: Final = ("v6e", "v5p", "v5litepod", "v4", "v3")
"""The order in which `tpu:N` looks for a generation that offers N chips."""


@cache
def all_slices(generation: str) -> Mapping[str, Tpu]:
    """Return every slice that exists, by topology, smallest and most cube-like first."""
    found = TPU_BY_NAME[generation]
    slices: dict[str, Tpu] = {}
    counted: set[int] = set()
    cubes = found.ceiling // 64 if found.free_form else 0
    free = {
        f"{4 * a}x{4 * b}x{4 * c}"
        for a in range(1, round(cubes ** (1 / 3)) + 1)
        for b in range(a, cubes // a + 1)
        for c in range(b, cubes // (a * b) + 1)
    }
    for topology in sorted({*documented(found), *free}, key=_size_then_shape):
        chips = prod(dimensions(topology))
        alone = found.single_host.get(topology)
        machine = alone or found.worker
        slices[topology] = Tpu(
            # A number of chips means its most cube-like shape; other shapes are named by their topology.
            canonical=f"{found.name}-{topology if chips in counted else chips}",
            generation=found.name,
            label=found.label if alone else found.multi_host_label or found.label,
            topology=topology,
            chips=chips,
            hosts=chips // machine.chips,
            chips_per_host=machine.chips,
            machine_type=machine.name,
        )
        counted.add(chips)
    return slices


@cache
def slices_by_chips(generation: str) -> Mapping[int, Tpu]:
    """Return the most cube-like slice for each number of chips."""
    slices: dict[int, Tpu] = {}
    for tpu in all_slices(generation).values():
        slices.setdefault(tpu.chips, tpu)
    return slices


def documented(generation: TpuGeneration) -> tuple[str, ...]:
    """Return the topologies of Google's own table, smallest first."""
    return (*generation.single_host, *generation.multi_host)


def dimensions(topology: str) -> tuple[int, ...]:
    """Return the sides of *topology*."""
    return tuple(int(side) for side in topology.split("x"))


def _size_then_shape(topology: str) -> tuple[int, int, tuple[int, ...]]:
    """Order by number of chips, then by surface: of all boxes of one volume, the cube has the smallest."""
    sides = dimensions(topology)
    chips = prod(sides)
    return chips, sum(chips // side for side in sides), sides
