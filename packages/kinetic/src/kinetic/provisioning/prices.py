"""Prices of accelerators: what Google's catalogue says, else a dated table of list prices."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Final, Literal

from kinetic_k8s.accelerators.types import Gpu, Tpu
from kinetic_k8s.manifests.compute_class import Priority
from kinetic_k8s.manifests.names import region_of
from kinetic_payload.errors import KineticError
from kinetic_payload.records.decode import checked

if TYPE_CHECKING:
    from kinetic.settings.settings import Settings

Way = Literal["on-demand", "spot", "flex-start"]
Catalogue = Mapping[str, Mapping[str, float]]
"""By the name of a SKU, US dollars per hour by region."""

HOURS_PER_MONTH: Final = 730
_DAY: Final = 86_400.0
_LIMIT: Final = 5.0
"""Seconds for each page of the catalogue."""
_SPOT: Final = "attached to Spot Preemptible VMs"
_CHIPS: Final[Mapping[tuple[str, Way], str]] = {
    ("v5litepod", "on-demand"): "TpuV5e",
    ("v5litepod", "spot"): f"TpuV5e {_SPOT}",
    ("v5litepod", "flex-start"): "DWS Defined Duration V5e",
    ("v5p", "on-demand"): "TpuV5p",
    ("v5p", "spot"): f"TpuV5p {_SPOT}",
    ("v5p", "flex-start"): "DWS Defined Duration V5p",
    ("v6e", "on-demand"): "TpuV6e",
    ("v6e", "spot"): f"TpuV6e {_SPOT}",
    ("v6e", "flex-start"): "DWS Defined Duration V6e",
    ("tpu7x", "on-demand"): "TPU7x",
}
"""The SKU of one chip, its machine included, without " running in PLACE".

As public records of the catalogue of 2026 have them; the SKUs of v3 and v4 have other units.
"""
_MACHINES: Final[Mapping[tuple[str, Way], tuple[str, str, str]]] = {
    ("g2-standard", "on-demand"): ("Nvidia L4 GPU", "G2 Instance Core", "G2 Instance Ram"),
    ("g2-standard", "spot"): (
        f"Nvidia L4 GPU {_SPOT}",
        "Spot Preemptible G2 Instance Core",
        "Spot Preemptible G2 Instance Ram",
    ),
    ("a2-highgpu", "on-demand"): ("Nvidia Tesla A100 GPU", "A2 Instance Core", "A2 Instance Ram"),
}
"""The SKUs of one GPU, one core and one GiB, by family of machines. Others have SKUs of local disks as well."""
NAMES: Final = frozenset(
    {*_CHIPS.values(), *(each for all_ in _MACHINES.values() for each in all_)}
)
"""The SKUs that are looked for in the catalogue."""

_DUMP: Final = "dim_tpu_price.sql, a public record of the Cloud Billing catalogue"
_GEMMA: Final = "https://github.com/xbill9/gemma4-dev, of the Cloud Billing catalogue"
_RECORD: Final = "https://github.com/Cyclenerd/google-cloud-pricing-cost-calculator, of the Cloud Billing catalogue"
_LISTED: Final[Mapping[tuple[str, Way], tuple[float, str, str, str]]] = {
    ("tpu7x-standard", "on-demand"): (12.00, "us-central1", "2026-08-24", _DUMP),
    ("tpu7x-standard", "spot"): (4.332, "us-central1", "2026-08-24", _DUMP),
    ("ct6e-standard", "on-demand"): (2.70, "us-central1", "2026-08-24", _DUMP),
    ("ct6e-standard", "flex-start"): (1.35, "us-east5", "2026-08-07", _GEMMA),
    ("ct6e-standard", "spot"): (1.4033, "us-east5", "2026-08-07", _GEMMA),
    ("ct5p-hightpu", "on-demand"): (4.20, "us-central1", "2026-08-24", _DUMP),
    ("ct5lp-hightpu", "on-demand"): (1.20, "us-central1", "2026-08-24", _DUMP),
    ("ct5lp-hightpu", "flex-start"): (0.60, "us-west4", "2026-08-09", _GEMMA),
    ("ct5lp-hightpu", "spot"): (0.5779, "us-west4", "2026-08-09", _GEMMA),
    ("g2-standard-4", "on-demand"): (0.706832255, "us-central1", "2026-09-24", _RECORD),
    ("a2-highgpu", "on-demand"): (3.673385, "us-central1", "2025-03-06", _RECORD),
    ("a2-ultragpu", "on-demand"): (5.06879789, "us-central1", "2025-03-06", _RECORD),
    ("a3-highgpu", "on-demand"): (11.06124999, "us-central1", "2025-03-06", _RECORD),
}
"""US dollars per hour for one chip or GPU with its share of the machine, where and when, and where it was found.

By the family of machines, or by the machine if those of a family differ. What was not found is not here.
"""


@dataclass(frozen=True)
class Price:
    """What an accelerator costs while its machines exist."""

    per_hour: float
    """US dollars for all machines of the accelerator."""
    source: str
    """The catalogue or the table, with place and date."""

    def __str__(self) -> str:
        return f"${self.per_hour:,.2f}/h"


@dataclass(frozen=True)
class Prices:
    """The prices of a region."""

    region: str | None = None
    """None: it is not known."""
    catalogue: Catalogue | None = None
    """None: it could not be read."""
    read: str = ""
    """The day on which the catalogue was read."""

    def of(self, priority: Priority) -> Price | None:
        """Return the price of the accelerator, bought as *priority* says; None if it is not known.

        A reservation is billed whether it is used or not; GKE chooses, and bills, the machines of CPU jobs.
        """
        accelerator = priority.accelerator
        if priority.reservation is not None or not isinstance(accelerator, Gpu | Tpu):
            return None
        way: Way = (
            "spot" if accelerator.spot else "flex-start" if priority.flex_start else "on-demand"
        )
        parts = _parts(accelerator, way)
        known = [(self.catalogue or {}).get(name, {}).get(self.region or "") for name, _ in parts]
        if parts and None not in known:
            total = sum((one or 0.0) * n for one, (_, n) in zip(known, parts, strict=True))
            return Price(total, f"Google's catalogue, {self.region}, {self.read}")
        machine = accelerator.machine_type
        found = next(
            (_LISTED[key, way] for key in (machine, _family(machine)) if (key, way) in _LISTED),
            None,
        )
        if found is None:
            return None
        dollars, region, day, _ = found
        return Price(dollars * accelerator.devices, f"list price, {region}, {day}")


def _family(machine: str) -> str:
    return machine.rpartition("-")[0]


def _parts(accelerator: Gpu | Tpu, way: Way) -> list[tuple[str, float]]:
    """Return the SKUs that the accelerator is billed by, each with how many; none if they are not known."""
    if isinstance(accelerator, Tpu):
        chip = _CHIPS.get((accelerator.generation, way))
        return [(chip, accelerator.chips)] if chip else []
    machine, count = accelerator.machine_type, accelerator.count
    names = _MACHINES.get((_family(machine), way))
    if names is None:
        return []
    # https://cloud.google.com/compute/docs/accelerator-optimized-machines
    cores = int(machine.rpartition("-")[2]) if machine.startswith("g2-") else 12 * count
    memory = 4 * cores if machine.startswith("g2-") else 85 * count
    return list(zip(names, (count, cores, memory), strict=True))


def known_prices(settings: Settings, *, ask: bool = True, location: str | None = None) -> Prices:
    """Return the prices where the cluster of *settings* is; the catalogue is read at most once a day.

    Args:
        settings: They name the place and the project.
        ask: Whether the catalogue is read if it was not read today; that takes seconds.
        location: Where the cluster is; None: where the settings say.
    """
    place = location or (None if settings.kube_context.value else settings.zone.value)
    region = region_of(place) if place else None
    file = Path(settings.home.value) / "prices.json"
    try:
        read = file.stat().st_mtime
        if abs(time() - read) < _DAY:
            kept = checked(dict[str, dict[str, float]], json.loads(file.read_bytes()))
            return Prices(region, kept, _day(read))
    except (OSError, ValueError, KineticError):
        pass  # It was never read, or the file is damaged.
    if not (ask and region and settings.project.value):
        return Prices(region)
    from kinetic.settings.settings import environment
    from kinetic_payload.files.private import make_folder, write_private

    try:
        from kinetic.provisioning.google.billing import read_catalogue
        from kinetic.provisioning.google.cloud import Cloud

        cloud = Cloud(settings.project.value, environment(), timeout=_LIMIT, patience=0)
        catalogue = read_catalogue(cloud, NAMES)
        make_folder(file.parent)
        write_private(file, json.dumps(catalogue).encode())
    except (ImportError, KineticError, OSError):
        # No extra `clusters`, its API is not enabled, or the home cannot be written, say: then there is the table.
        return Prices(region)
    return Prices(region, catalogue, _day(time()))


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()
