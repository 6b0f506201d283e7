"""Refuse what the backend `gke` cannot run, before anything is packaged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinetic.errors import InvalidRequestError

if TYPE_CHECKING:
    from kinetic.submit.request import JobRequest
    from kinetic_payload.stores.store import Location


def check_request(request: JobRequest, store: Location) -> None:
    """Refuse a request that this version cannot run on a cluster.

    Raises:
        InvalidRequestError: It cannot run the request; the hint says what to use instead.
    """
    if store.kind != "gs":
        raise InvalidRequestError(
            f"Pods cannot reach the store {store}, which is a folder of this machine "
            f"(from: {request.settings.store.source}).",
            hint="Set KINETIC_STORE=gs://BUCKET.",
        )
    if request.volumes:
        from kinetic.mount_paths import check_volumes
        from kinetic_k8s.manifests.pod import WORKSPACE
        from kinetic_payload.layout import MOUNTS

        check_volumes(request.volumes, workspaces=(WORKSPACE, MOUNTS))
