"""Whether a cluster of GKE has a node pool for a job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from kinetic.errors import InvalidRequestError
from kinetic_k8s.accelerators.types import Accelerator, describe
from kinetic_k8s.reading.causes import QUEUE
from kinetic_k8s.reading.preflight import missing

if TYPE_CHECKING:
    from kinetic.settings.settings import Settings
    from kinetic_k8s.cluster.gke import GkeCluster

_PLACES: Final = ("nodeSelector", "tolerations", "affinity", "schedulerName", "runtimeClassName")
_LIMIT: Final = 60.0
"""Seconds for a look-up of the cluster."""


def check_pools(accelerator: Accelerator, gke: GkeCluster, *, placed_by: str = "") -> str | None:
    """Refuse a job on *accelerator* for which *gke* has no node pool, and will not add one.

    *placed_by* names what else decides where the job's pods run (see `placement_by_user`); with it, no job is
    refused. Return a warning if GKE has to add a node pool, or if it is not certain that none fits.

    Raises:
        InvalidRequestError: There is no such pool; the message names the nearest one.
    """
    obstacle = missing(accelerator, gke.pools)
    if obstacle:
        gke = gke.look_up(
            _LIMIT
        )  # A pool may have been added since this process found the cluster.
        obstacle = missing(accelerator, gke.pools)
    if not obstacle:
        return None
    what = f"The cluster {gke.name!r} has no machines for {describe(accelerator)}. {obstacle}"
    if gke.autoprovisioning:
        return f"{what} GKE may add it by itself (auto-provisioning); the job waits for it."
    if gke.compute_classes:
        return f"{what} The default ComputeClass may add it; the job waits for it."
    if placed_by:
        return f"{what} The job is submitted, because {placed_by} may place it elsewhere."
    raise InvalidRequestError(
        what,
        hint="Add such a pool (gcloud container node-pools create), or choose another accelerator: `kinetic "
        "accelerators` lists all.",
    )


def placement_by_user(
    overrides: Mapping[str, Any], labels: Mapping[str, str], settings: Settings | None
) -> str:
    """Return what of the user decides where pods run, besides the accelerator; empty if nothing does.

    *settings* are those of a job under Pathways, otherwise None.
    """
    spec = overrides.get("spec", {})
    found = [f"pod_overrides (spec.{name})" for name in _PLACES if spec.get(name)]
    if QUEUE in labels:
        found.append(f"the queue {labels[QUEUE]!r}")
    if settings is not None:
        workers = {
            "pathways_worker_selector": settings.pathways_worker_selector.value,
            "pathways_worker_tolerations": settings.pathways_worker_tolerations.value,
        }
        found += [f"the setting {name}" for name, value in workers.items() if value]
    return found[0] if found else ""
