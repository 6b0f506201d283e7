"""Regions and zones: whether they exist, and which machines they have."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from kinetic.errors import ConfigurationError
from kinetic.provisioning.desired import ClusterPlace, checked_region
from kinetic.provisioning.google.networks import Compute
from kinetic_k8s.accelerators.types import Cpu, Gpu, Tpu
from kinetic_k8s.manifests.compute_class import Priority


def check_place(
    compute: Compute, place: ClusterPlace, priorities: Iterable[Priority], asked: str
) -> list[str]:
    """Make sure that *asked* exists, and that the place of the cluster has the machines of *priorities*.

    Return the zones of its region that have those of the last one.

    Raises:
        ConfigurationError: It does not.
        ProvisioningError: That could not be read.
    """
    zones = [each["name"] for each in compute.items("list the zones", "zones")]
    known = sorted({*zones, *map(checked_region, zones)})
    if asked not in known:
        near = get_close_matches(asked, known, n=3) or known[:3]
        raise ConfigurationError(
            f"Google Cloud has no region or zone {asked!r} for the project {place.project!r}.",
            hint=f"Did you mean {', '.join(near)}? Name one with --zone.",
        )
    here: list[str] = []
    continent = place.region.partition("-")[0]
    for accelerator in dict.fromkeys(priority.accelerator for priority in priorities):
        if isinstance(accelerator, Cpu):
            continue
        where = _zones_with(compute, accelerator)
        here = [each for each in where if checked_region(each) == place.region]
        # GKE makes machines in the zones of the cluster: all of its region, or one.
        if place.location in {*where, *map(checked_region, where)}:
            continue
        zonal = place.location != place.region
        regions = sorted(
            set(map(checked_region, where)), key=lambda each: (not each.startswith(continent), each)
        )
        have = (zonal and here) or regions[:5]
        raise ConfigurationError(
            f"{place.location if zonal else f'No zone of {place.region}'} has {'no ' * zonal}machines with {accelerator}.",
            hint=f"These have: {', '.join(have)}. Name one with --zone."
            if where
            else f"The project {place.project!r} can use it nowhere. Ask Google for access, or choose another one.",
        )
    return here


def _zones_with(compute: Compute, accelerator: Gpu | Tpu) -> list[str]:
    """Return the zones that have the machines, or GPUs, of *accelerator*."""
    path, name = (
        ("aggregated/acceleratorTypes", accelerator.label)
        if isinstance(accelerator, Gpu)
        else ("aggregated/machineTypes", accelerator.machine_type)
    )
    found = compute.items(f"find {name}", path, filter=f"name={name}")
    return sorted({str(each["zone"]).rpartition("/")[2] for each in found})
