"""Buckets as volumes of a pod, mounted by the GCS FUSE CSI driver.

https://cloud.google.com/kubernetes-engine/docs/how-to/cloud-storage-fuse-csi-driver-setup
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from kinetic_payload.data.references import DataRef
from kinetic_payload.data.sources import parse_gcs
from kinetic_payload.errors import InvalidRequestError
from kinetic_payload.layout import data_files_prefix
from kinetic_payload.stores.store import Location

Manifest = dict[str, Any]

DRIVER: Final = "gcsfuse.csi.storage.gke.io"
ANNOTATION: Final = "gke-gcsfuse/volumes"
"""The annotation of a pod without which GKE mounts nothing."""
_FOR_EVER: Final = "-1"
_TEN_MINUTES: Final = "600"


@dataclass(frozen=True, kw_only=True)
class PodVolumes:
    """The parts of a pod template for its mounts."""

    volumes: list[Manifest]
    volume_mounts: list[Manifest]


def fuse_volumes(refs: Iterable[DataRef], jobs: Location) -> PodVolumes | None:
    """Render the read-only mounts for the *refs* with `fuse` and without a `local_path`; None if there are none.

    *jobs* is the location of the jobs' bucket. For a single object, its folder is mounted, and the file in it
    is named `ref.name`. Data that was local is in the jobs' bucket, one object for each file. Mounts of the
    same folder share a volume, because each volume is a process in the sidecar.

    Raises:
        InvalidRequestError: A folder's name cannot be written in mount options.
    """
    volumes: dict[tuple[str, str], Manifest] = {}
    mounts: list[Manifest] = []
    for ref in refs:
        if not ref.fuse or ref.local_path is not None:
            continue
        if ref.kind == "gcs":
            source = parse_gcs(ref.source)
            bucket, name = source.bucket, source.name
        elif ref.kind == "local" and ref.digest is not None:
            bucket, _, prefix = jobs.path.partition("/")
            name = f"{prefix}/" * bool(prefix) + data_files_prefix(ref.digest)
        else:
            raise InvalidRequestError(
                f"{ref.source!r} cannot be mounted: it is not in a bucket.",
                hint="Leave fuse=True out.",
            )
        if ":" in ref.mounted_at:
            raise InvalidRequestError(
                f"{ref.mounted_at!r} cannot be the mount path of a volume.",
                hint="Use an absolute path without colons.",
            )
        directory = name.removesuffix("/") if name.endswith("/") else name.rpartition("/")[0]
        # Mount options have no quoting: they are split at commas, and drivers take colons for settings.
        parts = directory.split("/") if directory else []
        if (
            any(each in directory for each in ",:")
            or not directory.isprintable()
            or directory != directory.strip()
            or not {"", ".", ".."}.isdisjoint(parts)
        ):
            raise InvalidRequestError(
                f"{ref.source!r} cannot be mounted: its folder has ',', ':', a space at its beginning or end, "
                "a character that cannot be printed, or an empty part.",
                hint="Leave fuse=True out, or use a folder of another name.",
            )
        # In a bucket, folders exist only as parts of objects' names. Uploaded data never changes.
        options = f"implicit-dirs,only-dir={directory}" if directory else "implicit-dirs"
        attributes = {
            "bucketName": bucket,
            "mountOptions": options,
            "metadataCacheTTLSeconds": _TEN_MINUTES if ref.kind == "gcs" else _FOR_EVER,
        }
        csi = {"driver": DRIVER, "readOnly": True, "volumeAttributes": attributes}
        volume = volumes.setdefault((bucket, directory), {"name": f"data-{ref.key}", "csi": csi})
        mounts.append({"name": volume["name"], "mountPath": ref.mounted_at, "readOnly": True})
    return PodVolumes(volumes=list(volumes.values()), volume_mounts=mounts) if mounts else None
