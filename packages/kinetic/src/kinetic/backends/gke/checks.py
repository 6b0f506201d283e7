"""Refuse what a cluster cannot run, and warn of what it may lack, before anything is packaged."""

from __future__ import annotations

import ipaddress
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar
from urllib.parse import urlsplit

from kinetic.data import Data, to_ref
from kinetic.errors import ConfigurationError, InvalidRequestError, KineticError
from kinetic.jobs.services import LOOK
from kinetic_k8s.accelerators.types import describe
from kinetic_k8s.errors import KindNotServedError, NotPermittedError
from kinetic_k8s.manifests.access import SERVICE_ACCOUNT
from kinetic_k8s.manifests.compute_class import COMPUTE_CLASS, KIND, POOLS, Pool, pool_for
from kinetic_k8s.manifests.labels import NODE_POOL
from kinetic_k8s.manifests.names import region_of
from kinetic_k8s.manifests.volumes import DRIVER, fuse_volumes
from kinetic_k8s.reading.causes import QUEUE
from kinetic_k8s.reading.preflight import class_command, missing, needs_policy
from kinetic_payload.errors import BucketNotFoundError
from kinetic_payload.layout import Env

if TYPE_CHECKING:
    from kinetic.settings.settings import Settings
    from kinetic.submit.request import JobRequest
    from kinetic_k8s.cluster.client import ApiServer
    from kinetic_k8s.cluster.gke import GkeCluster
    from kinetic_k8s.manifests import Manifest
    from kinetic_payload.stores.outages import OutageLimit
    from kinetic_payload.stores.store import Location

K = TypeVar("K")
V = TypeVar("V")

_STORAGE_VARIABLES: Final = (Env.STORAGE_ENDPOINT, "STORAGE_EMULATOR_HOST")
"""The first variable that is set is used, here and in pods."""


class _OncePerProcess(Generic[K, V]):
    """Values that a process looks up once for each key. Errors are not kept."""

    def __init__(self) -> None:
        self._known: dict[K, V] = {}
        self._lock = threading.Lock()

    def get(self, key: K, look_up: Callable[[], V]) -> V:
        with self._lock:
            if key not in self._known:
                self._known[key] = look_up()
            return self._known[key]


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


def storage_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variable of *environment* that names a bucket service, for pods; empty if none does.

    Raises:
        ConfigurationError: The address is a loopback address, which pods cannot reach.
    """
    for name in _STORAGE_VARIABLES:
        if address := environment.get(name):
            if _is_loopback(address):
                raise ConfigurationError(
                    f"{name} is {address!r}: no pod reaches a server on this machine's loopback.",
                    hint="Let the server listen on an address that pods reach, and name that.",
                )
            return {name: address}
    return {}


def _is_loopback(address: str) -> bool:
    host = urlsplit(address if "//" in address else f"//{address}").hostname or ""
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
    return ip.is_loopback or ip.is_unspecified


_driver_warnings = _OncePerProcess[str, str | None]()
"""By server."""


def check_mount(
    data: Data, store: Location, cluster: ApiServer, *, path: str | None = None
) -> str | None:
    """Refuse *data* that pods of *cluster* cannot mount; return a warning if that is uncertain.

    *path* is the mount path of a volume. A process looks for the driver once for each cluster.

    Raises:
        InvalidRequestError: Its folder cannot be mounted, or the cluster has no driver.
    """
    stand_in = to_ref(data, "d0", digest="0" * 64 if data.is_local else None, mount=path)
    fuse_volumes([stand_in], store)
    return _driver_warnings.get(cluster.identity.server, lambda: _check_driver(cluster, data))


def _check_driver(cluster: ApiServer, data: Data) -> str | None:
    try:
        found = cluster.within(LOOK).get("CSIDriver", DRIVER, brief=True)
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


GKE_CONTEXT: Final = re.compile(r"gke_(?P<project>[^_]+)_(?P<location>[^_]+)_(?P<cluster>[^_]+)")
"""A context of a kubeconfig that `gcloud` made for a cluster."""
# https://cloud.google.com/storage/docs/locations
_DUAL_REGIONS: Final = {
    "asia1": ("asia-northeast1", "asia-northeast2"),
    "eur4": ("europe-north1", "europe-west4"),
    "eur5": ("europe-west1", "europe-west2"),
    "eur7": ("europe-west2", "europe-west3"),
    "eur8": ("europe-west3", "europe-west6"),
    "nam4": ("us-central1", "us-east1"),
}
_EUROPE_OUTSIDE_EU: Final = ("europe-west2", "europe-west6")

_locations = _OncePerProcess[str, tuple[str, ...]]()
"""By bucket."""


def cluster_region(settings: Settings, context: str | None, known: str | None = None) -> str | None:
    """Return the region of the cluster; None if it is not known.

    *known* is the cluster's location according to GKE. A context that was made for GKE contains the
    location. The zone of the settings is used if it was set, not if it is the default.
    """
    gke = GKE_CONTEXT.fullmatch(context or "")
    zone = settings.zone
    set_by_user = "" if zone.is_default else zone.value
    return region_of(known or (gke["location"] if gke else set_by_user))


def region_warning(bucket: str, region: str | None, limit: OutageLimit | None = None) -> str | None:
    """Return a warning if *bucket* is not in *region*; None if it is, or if one of them is not known.

    A process asks for the location of a bucket once, and waits for it up to *limit*.

    Raises:
        BucketNotFoundError: There is no such bucket.
    """
    if region is None:
        return None
    found = _locations.get(bucket, lambda: _locations_of(bucket, limit))
    if not found or any(location_contains(place, region) for place in found):
        return None
    return (
        f"the bucket gs://{bucket} is in {' and '.join(found)}, and the cluster is in {region}: "
        "transfers between them are slower, and Google bills them"
    )


def bucket_of(uri: str) -> str:
    """Return the bucket in *uri*, which begins with `gs://`."""
    return uri.removeprefix("gs://").partition("/")[0]


def location_contains(place: str, region: str) -> bool:
    """Return whether *place*, a location of buckets in lower case, contains *region*."""
    if place in _DUAL_REGIONS:
        return region in _DUAL_REGIONS[place]
    if place == "eu":
        return region.startswith("europe-") and region not in _EUROPE_OUTSIDE_EU
    return place == region or (place in ("us", "asia") and region.startswith(f"{place}-"))


def _locations_of(name: str, limit: OutageLimit | None) -> tuple[str, ...]:
    from kinetic_payload.stores import open_bucket

    try:
        bucket = open_bucket(name)
        return (bucket if limit is None else bucket.limited(limit)).places()
    except BucketNotFoundError:
        raise
    except KineticError:
        # It is only a warning. An object of the bucket can often be read without this permission.
        return ()


DEFAULT_ACCOUNT: Final = "default"
"""The service account that every namespace has."""


@dataclass(frozen=True)
class ServiceAccount:
    """The service account of a job's pods."""

    name: str | None
    """None: the default of the namespace."""
    warning: str | None = None
    """For the user."""


_accounts = _OncePerProcess[tuple[str, str, str | None], ServiceAccount]()
"""By server, namespace and name."""


def service_account_of(cluster: ApiServer, named: str | None) -> ServiceAccount:
    """Return the service account that the setting *named*, or else `kinetic`, or else the default.

    A process looks at most once for each namespace.

    Raises:
        ConfigurationError: The named service account does not exist.
    """
    if named == DEFAULT_ACCOUNT:
        return ServiceAccount(None)
    where = cluster.identity
    key = (where.server, where.namespace, named)
    return _accounts.get(key, lambda: _find_account(cluster, named))


def _find_account(cluster: ApiServer, named: str | None) -> ServiceAccount:
    namespace = cluster.identity.namespace
    try:
        found = cluster.within(LOOK).get("ServiceAccount", named or SERVICE_ACCOUNT, brief=True)
    except NotPermittedError:
        # A named one is used anyway: if it does not exist, the status of the job reports that.
        return ServiceAccount(
            named, None if named else _account_warning(namespace, "may not be looked up")
        )
    if found is not None:
        return ServiceAccount(named or SERVICE_ACCOUNT)
    if named is not None:
        raise ConfigurationError(
            f"There is no service account {named!r} in {cluster.identity}.",
            hint=f"Create it (kubectl create serviceaccount {named} --namespace={namespace}), or set "
            f"KINETIC_SERVICE_ACCOUNT, or service_account in the profile, to another one; {DEFAULT_ACCOUNT!r} "
            "always exists.",
        )
    return ServiceAccount(None, _account_warning(namespace, "does not exist"))


def _account_warning(namespace: str, why: str) -> str:
    return (
        f"pods run as the service account {DEFAULT_ACCOUNT!r}, because {SERVICE_ACCOUNT!r} {why} in the namespace "
        f"{namespace!r}; KINETIC_SERVICE_ACCOUNT names the one to use"
    )


_PLACEMENT_FIELDS: Final = (
    "nodeSelector",
    "tolerations",
    "affinity",
    "schedulerName",
    "runtimeClassName",
)


def pool_in(cluster: ApiServer, request: JobRequest) -> tuple[Pool | None, str]:
    """Return the pool of *cluster* for the accelerator of *request*; and a warning if the user may not look.

    There is none for a job whose machines the user selects.
    """
    spec = request.pod_overrides.get("spec", {})
    selected = " ".join(spec.get("nodeSelector") or ())
    if request.semantics == "pathways":
        selected += request.settings.pathways_worker_selector.value or ""
    by_user = COMPUTE_CLASS in selected or NODE_POOL in selected
    if by_user or (spec.get("affinity") or {}).get("nodeAffinity"):
        return None, ""
    try:
        classes = classes_in(cluster) or []
    except NotPermittedError:
        return None, (
            f"whether the cluster has a pool for {request.accelerator} could not be checked: you may not list "
            "computeclasses.cloud.google.com; the job gets a machine of a node pool only"
        )
    return pool_for(request.accelerator, classes), ""


def classes_in(cluster: ApiServer) -> list[Manifest] | None:
    """Return the ComputeClasses of *cluster* that are Kinetic's; None if it serves no such objects."""
    try:
        return cluster.list(KIND, labels=POOLS) if cluster.serves(KIND) else None
    except KindNotServedError:  # Other kinds of its API are older.
        return None


_LOOK_UP_SECONDS: Final = 60.0
"""The limit of a look-up of the cluster."""


def check_pools(request: JobRequest, gke: GkeCluster, *, unknown: bool = False) -> str | None:
    """Refuse a job for which *gke* has no node pool, and will not add one.

    None is refused whose pods the user places by overrides, a queue or settings of Pathways, or for which there may be
    a pool that is *unknown*. Return a warning if GKE has to add a node pool, or if it is not certain that none fits.

    Raises:
        InvalidRequestError: There is no such pool; the message names the nearest one.
    """
    accelerator, settings = request.accelerator, request.settings
    obstacle = missing(accelerator, gke.pools)
    if obstacle:
        # A pool may have been added since this process found the cluster.
        gke = gke.look_up(_LOOK_UP_SECONDS)
        obstacle = missing(accelerator, gke.pools)
    if not obstacle:
        return None
    what = f"The cluster {gke.name!r} has no machines for {describe(accelerator)}. {obstacle}"
    if gke.autoprovisioning:
        return f"{what} GKE may add it by itself (auto-provisioning); the job waits for it."
    if gke.compute_classes:
        return f"{what} The default ComputeClass may add it; the job waits for it."
    spec = request.pod_overrides.get("spec", {})
    placed = QUEUE in request.labels or any(spec.get(each) for each in _PLACEMENT_FIELDS)
    if request.semantics == "pathways":
        placed |= bool(settings.pathways_worker_selector.value)
        placed |= bool(settings.pathways_worker_tolerations.value)
    if placed or unknown:
        return f"{what} The job is submitted, because it may be placed elsewhere."
    raise InvalidRequestError(
        what,
        hint="Choose another accelerator (`kinetic accelerators` lists all), or add such a pool: "
        f"{class_command(accelerator)}"
        + ("" if needs_policy(accelerator) else f" --cluster {gke.name} --zone {gke.location}")
        + f" --project={gke.project}",
    )
