"""Buckets as volumes of a pod, mounted by the GCS FUSE CSI driver.

https://cloud.google.com/kubernetes-engine/docs/how-to/cloud-storage-fuse-csi-driver-setup
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kinetic_k8s.quantity import near_quantities, parse_quantity
from kinetic_payload.data.references import DataRef
from kinetic_payload.data.sources import parse_gcs
from kinetic_payload.errors import InvalidRequestError
from kinetic_payload.layout import data_files_prefix
from kinetic_payload.stores.store import Location

Manifest = dict[str, Any]

DRIVER: Final = "gcsfuse.csi.storage.gke.io"
ANNOTATION: Final = "gke-gcsfuse/volumes"

REFUSED_OPTIONS: Final = frozenset(
    {
        "log-file", "log-format", "o", "cache-dir", "temp-dir", "config-file", "foreground",
        "key-file", "token-url", "reuse-token-from-url", "prometheus-port", "kernel-params-file",
    }
)  # fmt: skip
"""Mount options that the driver sets itself."""
OUR_OPTIONS: Final = frozenset(
    {"implicit-dirs", "only-dir", "uid", "gid", "file-mode", "dir-mode", "ro", "rw"}
)
"""Mount options that come from a volume's own fields."""

_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_NEVER: Final = -1


@dataclass(frozen=True, kw_only=True)
class FuseMount:
    """A folder of a bucket, mounted at a path of the container."""

    name: str
    """A DNS label; distinct in its pod."""
    bucket: str
    directory: str = ""
    """Without slashes at its ends; empty: the whole bucket."""
    path: str
    """The mount path."""
    unchanging: bool = False
    """Its objects never change, so cached metadata never expires."""
    executable: bool = False
    """Files are executable. Buckets have no modes, so it is all files or none."""


@dataclass(frozen=True, kw_only=True)
class FuseSettings:
    """How buckets are mounted in one pod."""

    metadata_ttl: int = 600
    """Seconds for which sizes and absences are cached; -1 means without limit."""
    file_cache: str | None = None
    """The size of the file cache on the node's disk, such as `20Gi`; None: no cache."""
    uid: int | None = None
    gid: int | None = None
    """The owner of the files, for containers that do not run as root."""
    options: tuple[str, ...] = ()
    """Further mount options, such as `max-conns-per-host=100`."""
    identity_provider: str | None = None
    """For pods on their node's network:
    `https://container.googleapis.com/v1/projects/P/locations/L/clusters/C`."""
    cpu_request: str | None = None
    cpu_limit: str | None = None
    memory_request: str | None = None
    memory_limit: str | None = None
    ephemeral_storage_request: str | None = None
    ephemeral_storage_limit: str | None = None
    """Resources of the sidecar that mounts buckets. None: the driver's default. `"0"` as a limit: no limit."""

    def __post_init__(self) -> None:
        if self.metadata_ttl < _NEVER:
            raise InvalidRequestError(
                f"metadata_ttl={self.metadata_ttl} is not a time in seconds.",
                hint="Use a number of seconds, or -1 for no limit.",
            )
        for option in self.options:
            _check_option(option)
        for name, quantity in (("file-cache", self.file_cache), *_resources(self)):
            if quantity is not None:
                _check_quantity(name.replace("-", "_"), quantity)


def _check_quantity(name: str, text: str) -> None:
    amount = parse_quantity(text)
    if amount is None or amount < 0:
        near = near_quantities(text)
        raise InvalidRequestError(
            f"{name}={text!r} is not an amount that Kubernetes accepts.",
            hint="Write for example 500m or 20Gi."
            + f" Did you mean {' or '.join(map(repr, near))}?" * bool(near),
        )


@dataclass(frozen=True, kw_only=True)
class PodVolumes:
    """The parts of a pod template for its mounts."""

    annotations: dict[str, str]
    volumes: list[Manifest]
    volume_mounts: list[Manifest]


def fuse_mounts(
    refs: Iterable[DataRef], jobs: Location, *, executable: bool = False
) -> tuple[FuseMount, ...]:
    """Return the mounts for the *refs* with `fuse` and without a `local_path`.

    *jobs* is the location of the jobs' bucket.

    For a single object, its folder is mounted, and the file in it is named `ref.name`. Data that was
    local is in the jobs' bucket, one object for each file; *executable* makes these files executable.

    Raises:
        InvalidRequestError: A folder's name cannot be written in mount options.
    """
    mounts = []
    for ref in refs:
        if not ref.fuse or ref.local_path is not None:
            continue
        if ref.kind == "gcs":
            source = parse_gcs(ref.source)
            bucket, name, uploaded = source.bucket, source.name, False
        elif ref.kind == "local" and ref.digest is not None:
            bucket, _, prefix = jobs.path.partition("/")
            name = f"{prefix}/" * bool(prefix) + data_files_prefix(ref.digest)
            uploaded = True
        else:
            raise InvalidRequestError(
                f"{ref.source!r} cannot be mounted: it is not in a bucket.",
                hint="Leave fuse=True out.",
            )
        directory = name.removesuffix("/") if name.endswith("/") else name.rpartition("/")[0]
        _check_directory(directory, ref.source)
        mounts.append(
            FuseMount(
                name=f"data-{ref.key}",
                bucket=bucket,
                directory=directory,
                path=ref.mounted_at,
                unchanging=uploaded,
                executable=executable and uploaded,
            )
        )
    return tuple(mounts)


def fuse_volumes(mounts: Sequence[FuseMount], settings: FuseSettings | None = None) -> PodVolumes:
    """Render *mounts* for a pod template and its container.

    Mounts of the same folder share a volume, because each volume is a process in the sidecar.

    Raises:
        InvalidRequestError: A name is not a DNS label or not unique, or a folder cannot be mounted.
    """
    settings = settings or FuseSettings()
    _check_mounts(mounts)
    if not mounts:
        return PodVolumes(annotations={}, volumes=[], volume_mounts=[])
    shared: dict[tuple[object, ...], str] = {}
    volumes: list[Manifest] = []
    volume_mounts: list[Manifest] = []
    for mount in mounts:
        folder = (mount.bucket, mount.directory, mount.unchanging, mount.executable)
        name = shared.setdefault(folder, mount.name)
        if name is mount.name:
            volumes.append(fuse_volume(mount, settings))
        volume_mounts.append({"name": name, "mountPath": mount.path, "readOnly": True})
    return PodVolumes(
        annotations=fuse_annotations(settings), volumes=volumes, volume_mounts=volume_mounts
    )


def fuse_volume(mount: FuseMount, settings: FuseSettings | None = None) -> Manifest:
    """Render one volume, read-only."""
    settings = settings or FuseSettings()
    ttl = _NEVER if mount.unchanging else settings.metadata_ttl
    # The driver accepts only strings.
    attributes = {
        "bucketName": mount.bucket,
        "mountOptions": ",".join(_options(mount, settings)),
        "metadataCacheTTLSeconds": str(ttl),
    }
    if settings.file_cache is not None:
        attributes["fileCacheCapacity"] = settings.file_cache
    if settings.identity_provider is not None:
        attributes["hostNetworkPodKSA"] = "true"
        attributes["identityProvider"] = settings.identity_provider
    return {
        "name": mount.name,
        "csi": {"driver": DRIVER, "readOnly": True, "volumeAttributes": attributes},
    }


def fuse_annotations(settings: FuseSettings | None = None) -> dict[str, str]:
    """Return the annotations of a pod template. Without the first of them, GKE mounts nothing."""
    wanted = {
        f"gke-gcsfuse/{name}": value for name, value in _resources(settings or FuseSettings())
    }
    return {ANNOTATION: "true"} | {name: value for name, value in wanted.items() if value}


def _options(mount: FuseMount, settings: FuseSettings) -> Iterable[str]:
    # In a bucket, folders exist only as parts of objects' names.
    yield "implicit-dirs"
    if mount.directory:
        yield f"only-dir={mount.directory}"
    if settings.uid is not None:
        yield f"uid={settings.uid}"
    if settings.gid is not None:
        yield f"gid={settings.gid}"
    if mount.executable:
        yield "file-mode=755"
    yield from settings.options


def _resources(settings: FuseSettings) -> Iterable[tuple[str, str | None]]:
    yield "cpu-request", settings.cpu_request
    yield "cpu-limit", settings.cpu_limit
    yield "memory-request", settings.memory_request
    yield "memory-limit", settings.memory_limit
    yield "ephemeral-storage-request", settings.ephemeral_storage_request
    yield "ephemeral-storage-limit", settings.ephemeral_storage_limit


def _check_option(option: str) -> None:
    name = re.split("[=:]", option, maxsplit=1)[0].strip()
    if "," in option or not option.isprintable() or option != option.strip() or not name:
        raise InvalidRequestError(
            f"{option!r} is not a mount option.", hint="Write each option by itself: ('a', 'b=1')."
        )
    if name in REFUSED_OPTIONS:
        raise InvalidRequestError(
            f"The driver refuses the mount option {name!r}, because it sets this option itself.",
            hint="Leave it out.",
        )
    if name in OUR_OPTIONS:
        raise InvalidRequestError(
            f"The mount option {name!r} is set by Kinetic.",
            hint="Use the fields of FuseSettings and FuseMount.",
        )


def _check_directory(directory: str, source: str) -> None:
    """Refuse a folder with characters that mount options cannot contain, since they have no quoting."""
    why = None
    if "," in directory:
        why = "mount options are split at every comma"
    elif ":" in directory:
        why = "drivers read a mount option with a colon as a setting"
    elif not directory.isprintable():
        why = "it contains characters that cannot be printed"
    elif directory != directory.strip():
        why = "it begins or ends with a space"
    elif directory and any(part in ("", ".", "..") for part in directory.split("/")):
        why = "it has an empty part, '.' or '..'"
    if why is not None:
        raise InvalidRequestError(
            f"{source!r} cannot be mounted: {why}.",
            hint="Leave fuse=True out, or use a folder of another name.",
        )


def _check_mounts(mounts: Sequence[FuseMount]) -> None:
    names: set[str] = set()
    paths: set[str] = set()
    for mount in mounts:
        if not _LABEL.fullmatch(mount.name):
            raise InvalidRequestError(
                f"{mount.name!r} cannot be the name of a volume.",
                hint="Use at most 63 lower-case letters, digits and '-'; begin and end with a letter or digit.",
            )
        if mount.name in names:
            raise InvalidRequestError(f"Two volumes have the name {mount.name!r}.")
        if mount.path in paths:
            raise InvalidRequestError(f"Two volumes have the mount path {mount.path}.")
        if not mount.path.startswith("/") or ":" in mount.path:
            raise InvalidRequestError(
                f"{mount.path!r} cannot be the mount path of a volume.",
                hint="Use an absolute path without colons.",
            )
        _check_directory(mount.directory, f"gs://{mount.bucket}/{mount.directory}/")
        names.add(mount.name)
        paths.add(mount.path)
