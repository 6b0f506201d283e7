"""Buckets mounted into the pods of a job (`Data(fuse=True)`)."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from kinetic.backends.gke.timeouts import with_short_timeout
from kinetic.data import Data, to_ref
from kinetic.errors import InvalidRequestError
from kinetic_k8s.errors import NotPermittedError
from kinetic_k8s.manifests.volumes import DRIVER, fuse_volumes

if TYPE_CHECKING:
    from kinetic_k8s.cluster.client import ApiServer
    from kinetic_payload.stores.store import Location

_checked: dict[str, str | None] = {}
"""Server → the warning about its driver."""
_lock = threading.Lock()


def check_mount(
    data: Data, store: Location, cluster: ApiServer, *, path: str | None = None
) -> str | None:
    """Refuse *data* that pods of *cluster* cannot mount; return a warning if that is uncertain.

    *path* is the mount path of a volume. A process looks for the driver once for each cluster.

    Raises:
        InvalidRequestError: Its folder cannot be mounted, or the cluster has no driver.
        ClusterError: The cluster cannot be queried.
    """
    stand_in = to_ref(data, "d0", digest="0" * 64 if data.is_local else None, mount=path)
    fuse_volumes([stand_in], store)
    server = cluster.identity.server
    with _lock:
        if server not in _checked:
            _checked[server] = _check_driver(cluster, data)
        return _checked[server]


def _check_driver(cluster: ApiServer, data: Data) -> str | None:
    try:
        found = with_short_timeout(cluster).get("CSIDriver", DRIVER, brief=True)
    except NotPermittedError:
        return (
            f"whether the cluster can mount buckets could not be checked: it needs the driver {DRIVER}, "
            "and you may not read CSIDriver objects; without it, pods with fuse=True do not start"
        )
    if found is None:
        raise InvalidRequestError(
            f"{data!r} cannot be mounted: the cluster {cluster.identity.server} does not have the driver "
            f"{DRIVER}.",
            hint="Enable it (gcloud container clusters update CLUSTER --location=LOCATION "
            "--update-addons=GcsFuseCsiDriver=ENABLED), or leave fuse=True out: then the data is downloaded.",
        )
    return None
