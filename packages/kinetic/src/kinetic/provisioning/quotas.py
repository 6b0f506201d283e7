"""The quotas that machines of a pool spend: those of Compute Engine, not those of the Cloud TPU API."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from kinetic.errors import ProvisioningError
from kinetic.provisioning.desired import ClusterPlace
from kinetic.settings.settings import environment
from kinetic.user_warnings import warn_caller
from kinetic_k8s.accelerators.types import Cpu, Gpu
from kinetic_k8s.manifests.compute_class import Priority

if TYPE_CHECKING:
    from kinetic.provisioning.google.cloud import Cloud

Quotas = Mapping[str, Mapping[str, str]]
"""Id of a quota → the dimensions of its limit, besides the place."""
_LIMIT: Final = 5.0
_GPUS: Final = {
    "nvidia-l4": "L4",
    "nvidia-tesla-t4": "T4",
    "nvidia-tesla-v100": "V100",
    "nvidia-tesla-p100": "P100",
    "nvidia-tesla-a100": "A100",
    "nvidia-a100-80gb": "A100-80GB",
}
_GPU_FAMILIES: Final = {
    "nvidia-h100-80gb": "NVIDIA_H100",
    "nvidia-h200-141gb": "NVIDIA_H200",
    "nvidia-b200": "NVIDIA_B200",
}


def quotas_of(priority: Priority) -> Quotas:
    """Return the quotas that machines of *priority* spend, as far as their ids are known; a reservation spends none.

    Spot and flex-start spend others than machines on demand. The ids are those of the Cloud Quotas API that users
    of GKE reported in 2026: https://cloud.google.com/docs/quotas/api-overview
    """
    accelerator = priority.accelerator
    if priority.reservation is not None or isinstance(accelerator, Cpu):
        return {}
    lent = accelerator.spot or priority.flex_start
    prefix = "PREEMPTIBLE-" * lent
    if isinstance(accelerator, Gpu):
        everywhere: Quotas = {} if lent else {"GPUS-ALL-REGIONS-per-project": {}}
        if (name := _GPUS.get(accelerator.label)) is not None:
            return {f"{prefix}NVIDIA-{name}-GPUS-per-project-region": {}, **everywhere}
        if (family := _GPU_FAMILIES.get(accelerator.label)) is not None and not lent:
            return {"GPUS-PER-GPU-FAMILY-per-project-region": {"gpu_family": family}, **everywhere}
        return {}
    match accelerator.generation, lent:
        case "v5litepod", _:
            name = f"{prefix}TPU-LITE-PODSLICE-V5-per-project"
            return {f"{name}-region": {}, f"{name}-zone": {}}
        case "v6e", True:
            return {"PREEMPTIBLE-TPU-V6E-per-project-region": {}}
        case "v6e", False:
            return {"TPUS-PER-TPU-FAMILY-per-project-region": {"tpu_family": "CT6E"}}
        case "v5p", _:
            return {f"{prefix}TPU-V5P-per-project-region": {}}
    return {}


def low_quotas(cloud: Cloud, place: ClusterPlace, priorities: Iterable[Priority]) -> list[str]:
    """Return what is too low for one slice of each of *priorities*, with the id and the limit.

    A limit is no promise: with a quota that is high enough, there may be no machines all the same.

    Raises:
        ProvisioningError: The limits cannot be read.
    """
    from kinetic.provisioning.google.quotas import limit_of

    found = []
    for priority in priorities:
        for name, dimensions in quotas_of(priority).items():
            limit = limit_of(cloud, name, {**dimensions, "region": place.region}, place.location)
            if limit is not None and 0 <= limit < (needed := priority.accelerator.devices):
                where = "" if name.endswith("-project") else f" in {place.region}"
                found.append(
                    f"the quota {name} of the project {place.project!r} is {limit or '0, or not set,'}{where}, and one slice of {priority} "
                    f"spends {needed}; ask for more: https://console.cloud.google.com/iam-admin/quotas?project={place.project}"
                )
    return found


def warn_of_quotas(place: ClusterPlace, priorities: Iterable[Priority]) -> None:
    """Warn the user of quotas that are too low for one slice; say nothing if they cannot be read."""
    wanted = [each for each in priorities if quotas_of(each)]
    if not wanted:
        return
    with suppress(ProvisioningError, ImportError):
        from kinetic.provisioning.google.cloud import Cloud

        cloud = Cloud(place.project, environment(), timeout=_LIMIT, patience=0)
        for line in low_quotas(cloud, place, wanted):
            warn_caller(line)
