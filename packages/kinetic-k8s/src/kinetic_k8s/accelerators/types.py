"""`Cpu`, `Gpu` and `Tpu`: the accelerators that a job can request, with their machines."""

from __future__ import annotations

from typing import ClassVar, Literal

from kinetic_payload.frozen import frozen

Kind = Literal["cpu", "gpu", "tpu"]


@frozen()
class Cpu:
    """Processor cores, no accelerator."""

    kind: ClassVar[Kind] = "cpu"
    devices: ClassVar[int] = 1
    """JAX sees the processor as a single device, however many cores it has."""
    hosts: ClassVar[int] = 1
    multi_host: ClassVar[bool] = False

    cores: int | None = None
    """The number of cores to request; None: the default of the backend."""
    spot: bool = False

    @property
    def canonical(self) -> str:
        """The name that `parse_accelerator` parses to this value, without `:spot`."""
        return "cpu" if self.cores is None else f"cpu:{self.cores}"

    @property
    def slug(self) -> str:
        """The canonical name as part of job ids and labels: lower-case letters, digits, dashes."""
        return self.canonical.replace(":", "-")

    def __str__(self) -> str:
        return self.canonical + ":spot" * self.spot


@frozen(kw_only=True)
class Gpu:
    """One or several GPUs of one machine."""

    kind: ClassVar[Kind] = "gpu"
    hosts: ClassVar[int] = 1
    multi_host: ClassVar[bool] = False

    name: str
    """The name of the type, such as `l4`."""
    label: str
    """The value of `cloud.google.com/gke-accelerator`."""
    count: int
    machine_type: str
    """The smallest machine that has so many."""
    arm64: bool = False
    """Whether that machine needs an image for Arm."""
    spot: bool = False

    @property
    def canonical(self) -> str:
        """The name that `parse_accelerator` parses to this value, without `:spot`."""
        return self.name if self.count == 1 else f"{self.name}x{self.count}"

    @property
    def slug(self) -> str:
        """The canonical name as part of job ids and labels: lower-case letters, digits, dashes."""
        return self.canonical

    @property
    def devices(self) -> int:
        """The number of devices that the whole job sees."""
        return self.count

    def __str__(self) -> str:
        return self.canonical + ":spot" * self.spot


@frozen(kw_only=True)
class Tpu:
    """A TPU slice: a number of chips, connected in a topology, on one machine or several."""

    kind: ClassVar[Kind] = "tpu"

    canonical: str
    """The name that `parse_accelerator` parses to this value, without `:spot`."""
    generation: str
    """Such as `v5litepod`."""
    label: str
    """The value of `cloud.google.com/gke-tpu-accelerator`."""
    topology: str
    """The value of `cloud.google.com/gke-tpu-topology`."""
    chips: int
    """The chips of the whole slice."""
    hosts: int
    chips_per_host: int
    machine_type: str
    spot: bool = False

    @property
    def slug(self) -> str:
        """The canonical name as part of job ids and labels: lower-case letters, digits, dashes."""
        return self.canonical

    @property
    def devices(self) -> int:
        """The number of devices that the whole job sees."""
        return self.chips

    @property
    def multi_host(self) -> bool:
        """Whether the slice spans several machines."""
        return self.hosts > 1

    def __str__(self) -> str:
        return self.canonical + ":spot" * self.spot


Accelerator = Cpu | Gpu | Tpu


def describe(accelerator: Accelerator) -> str:
    """Describe *accelerator* in one line: its size, machine and hosts."""
    match accelerator:
        case Cpu(cores=None):
            what = "processor only"
        case Cpu(cores=cores):
            what = f"processor only, {counted(cores or 0, 'core')}"
        case Gpu():
            what = (
                f"{accelerator.count} × {accelerator.label} on one {accelerator.machine_type}"
                f"{' (Arm)' if accelerator.arm64 else ''}"
            )
        case Tpu():
            what = f"{counted(accelerator.chips, 'chip')} in {accelerator.topology} on " + (
                f"{accelerator.hosts} hosts, each a {accelerator.machine_type} "
                f"with {accelerator.chips_per_host}"
                if accelerator.multi_host
                else f"one {accelerator.machine_type}"
            )
    return f"{accelerator.canonical}: {what}{', spot' if accelerator.spot else ''}"


def counted(number: int, noun: str) -> str:
    """Return *number* and *noun*, in the plural unless it is one."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
