"""Whether a cluster of GKE has a node pool for a job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinetic.errors import InvalidRequestError
from kinetic_k8s.accelerators.types import Accelerator, describe
from kinetic_k8s.reading.preflight import missing

if TYPE_CHECKING:
    from kinetic_k8s.cluster.gke import GkeCluster


def check_pools(accelerator: Accelerator, gke: GkeCluster) -> str | None:
    """Refuse a job on *accelerator* for which *gke* has no node pool, and will not add one.

    Return a warning if GKE has to add a node pool.

    Raises:
        InvalidRequestError: There is no such pool; the message names the nearest one.
    """
    obstacle = missing(accelerator, gke.pools)
    if obstacle:
        gke = gke.look_up()  # A pool may have been added since this process found the cluster.
        obstacle = missing(accelerator, gke.pools)
    if not obstacle:
        return None
    what = f"The cluster {gke.name!r} has no machines for {describe(accelerator)}. {obstacle}"
    if gke.autoprovisioning:
        return f"{what} GKE may add it by itself (auto-provisioning); the job waits for it."
    raise InvalidRequestError(
        what,
        hint="Add such a pool (gcloud container node-pools create), or choose another accelerator: `kinetic "
        "accelerators` lists all.",
    )
