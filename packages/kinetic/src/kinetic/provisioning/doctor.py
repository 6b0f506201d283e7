"""Find out what is wrong with a cluster, and say the line that fixes it: `kinetic doctor`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING, Final, Literal, cast

from kinetic.errors import CloudPermissionError, KineticError, ProvisioningError
from kinetic.provisioning.clusters import Prepared, compare
from kinetic.provisioning.desired import (
    BILLING,
    COMPUTE,
    OBJECTS_ROLE,
    ClusterOptions,
    ClusterPlace,
)
from kinetic.provisioning.plan import Resource, Step
from kinetic_k8s.manifests.releases import JOBSET
from kinetic_payload.errors import LoginRequiredError
from kinetic_payload.threads import parallel_map

if TYPE_CHECKING:
    from kinetic.provisioning.inside import InsideEdge
    from kinetic.settings.settings import Settings

State = Literal["pass", "warn", "fail", "skip"]
LIMIT: Final = 5.0
"""Seconds for what does not answer."""
_SKEW: Final = 30.0
"""Seconds by which clocks may differ; signatures and leases count in minutes."""
_OBJECTS: Final = tuple(f"storage.objects.{verb}" for verb in ("create", "get", "list", "delete"))
_MAKE: Final = "kinetic up"
Looks = Mapping[str, Callable[[Prepared], Iterator["Check"]]]


@dataclass(frozen=True)
class Check:
    """What was looked at, and what was seen."""

    name: str
    state: State
    message: str = ""
    fix: str = ""
    """The line that fixes it, or what to do."""


def diagnose(
    settings: Settings,
    options: ClusterOptions = ClusterOptions(),  # noqa: B008 - it is frozen
) -> list[Check]:
    """Look at everything that jobs on the cluster of *settings* need. Nothing is changed.

    The cluster itself says where it is and which network it has, not *options*. What does not answer within some seconds fails its own check only.

    Raises:
        ConfigurationError: The settings cannot name a cluster.
    """
    unread: list[Check] = []

    def failed(resource: Resource, error: KineticError) -> None:
        unread.append(_failed(resource.id, error))

    try:
        prepared = compare(settings, _options(settings, options), timeout=LIMIT, failed=failed)
    except LoginRequiredError as error:
        return [_failed("credentials", error), Check("everything else", "skip", "Log in first.")]
    except KineticError as error:
        passed = Check("credentials", "pass")
        return [passed, _failed("project", error), Check("everything else", "skip")]
    found = [Check("credentials", "pass"), *unread]
    found += [Check("plan", "fail", each.message, each.hint) for each in prepared.plan.problems]
    found += map(_of_step, prepared.plan.steps)
    cluster = [step for step in prepared.plan.steps if step.resource.kind == "cluster"]
    ready = [step.action for step in cluster] in (["keep"], ["change"])

    def look(name: str) -> list[Check]:
        if name in _INSIDE and not ready:
            return [Check(name, "skip", "The cluster is not ready.")]
        try:
            return list(_LOOKS[name](prepared)) or [Check(name, "pass")]
        except KineticError as error:
            return [_failed(name, error)]

    return [*found, *chain.from_iterable(parallel_map(look, _LOOKS, threads=len(_LOOKS)))]


def _options(settings: Settings, options: ClusterOptions) -> ClusterOptions:
    """Return *options* with the zone or region, and the network, that the cluster of the settings has."""
    from kinetic.backends.gke.connect import find_cluster
    from kinetic.target import Target

    try:
        _, gke = find_cluster(settings, replace(Target.in_settings(settings), kube_context=None))
    except KineticError:
        return options
    if gke is None:
        return options
    place = ClusterPlace(project=gke.project, location=gke.location, cluster=gke.name)
    theirs = gke.network != place.network
    return replace(
        options,
        standard=gke.location != place.region,
        network=gke.network if theirs else None,
        subnetwork=gke.subnetwork if theirs else None,
    )


def _of_step(step: Step) -> Check:
    match step.action:
        case "create":
            # Most jobs do without JobSet, and so does a cluster of `--no-jobset`.
            state: State = "warn" if step.resource.kind == JOBSET.name else "fail"
            return Check(step.resource.id, state, "It does not exist.", _MAKE)
        case "replace":
            return Check(step.resource.id, "fail", step.detail, _MAKE)
        case "change" | "wait":
            return Check(step.resource.id, "warn", step.detail, _MAKE)
    return Check(step.resource.id, "pass")


def _billing(prepared: Prepared) -> Iterator[Check]:
    from kinetic.provisioning.google.billing import is_billed

    cloud = prepared.cloud
    if BILLING not in cloud.enabled:
        yield Check("billing", "skip", f"The API {BILLING} is not enabled.")
        return
    try:
        billed = is_billed(cloud)
    except CloudPermissionError as error:
        yield Check("billing", "skip", error.message, error.hint or "")
        return
    if not billed:
        page = f"https://console.cloud.google.com/billing/linkedaccount?project={cloud.project}"
        yield Check("billing", "fail", "The project has no active billing account.", page)


def _bucket(prepared: Prepared) -> Iterator[Check]:
    from kinetic.provisioning.google.buckets import missing_on_bucket

    bucket = prepared.place.jobs_bucket
    if prepared.actual.get(f"bucket {bucket}") is None:
        return
    missing = missing_on_bucket(prepared.cloud, bucket, _OBJECTS)
    if missing:
        member = prepared.cloud.member
        yield Check(
            "objects of jobs",
            "fail",
            f"You lack {', '.join(missing)} on gs://{bucket}.",
            f"gcloud storage buckets add-iam-policy-binding gs://{bucket} --member={member} "
            f"--role={OBJECTS_ROLE}",
        )


def _clock(prepared: Prepared) -> Iterator[Check]:
    cluster = _inside(prepared).cluster
    cluster.get("Namespace", cluster.identity.namespace, brief=True)
    seconds = abs((cluster.now() - datetime.now(UTC)).total_seconds())
    if seconds > _SKEW:
        message = f"The clock of this machine differs from the cluster's by {seconds:.0f} s."
        yield Check("clock", "warn", message, "Synchronize it, for instance with chrony.")


def _submit(prepared: Prepared) -> Iterator[Check]:
    """See whether the user may read the key of the namespace, and create what jobs need."""
    from kinetic_k8s.cluster.creation import check_secret
    from kinetic_k8s.manifests.names import KEY_SECRET

    cluster = _inside(prepared).cluster
    cluster.get("Secret", KEY_SECRET, brief=True)
    check_secret(cluster)
    yield from ()


def _pools(prepared: Prepared) -> Iterator[Check]:
    from kinetic.provisioning.pools import list_pools
    from kinetic.provisioning.prices import known_prices
    from kinetic.provisioning.quotas import low_quotas
    from kinetic_k8s.reading.pools import idle_command, what_helps

    cloud, place = prepared.cloud, prepared.place
    pools = list_pools(_inside(prepared).settings)
    try:
        low = [low_quotas(cloud, place, each.pool.priorities) for each in pools]
    except ProvisioningError as error:
        yield Check("quotas of pools", "skip", error.message, error.hint or "")
        low = [[]] * len(pools)
    for status, quotas in zip(pools, low, strict=True):
        name = f"pool {status.pool.name}"
        for each in quotas:
            message, _, fix = each.partition("; ")
            yield Check(f"quota of {name}", "warn", message, fix)
        if status.problem:
            yield Check(name, "fail", status.problem, f"kinetic pool remove {status.pool.name}")
        if status.nodes and not status.used_by:
            known = known_prices(_inside(prepared).settings, ask=False).of(
                status.pool.priorities[0]
            )
            price = f"{known} for a slice" if known else "at an unknown price"
            seen = f"{status.nodes} machines are billed and run no job, {price}."
            yield Check(name, "warn", seen, idle_command(status) if status.pool.min_nodes else "")
        waits, remedy = what_helps(status)
        if waits and not status.problem:
            yield Check(name, "warn", waits, remedy)


def _pods(prepared: Prepared) -> Iterator[Check]:
    """Iterate over the pods of jobs in the namespace that wait for something, with the reason."""
    from kinetic_k8s.manifests.labels import JOB_ID, of_jobs
    from kinetic_k8s.reading.attempts import PodView
    from kinetic_k8s.reading.waiting import waiting_of

    cluster = _inside(prepared).cluster
    for pod in cluster.list("Pod", labels=of_jobs(()), fields="status.phase=Pending"):
        job, name = pod["metadata"]["labels"].get(JOB_ID, ""), pod["metadata"]["name"]
        if found := waiting_of(PodView(pod), (), workload=job):
            yield Check(f"pod {name}", "warn", found.reason, found.remedy)


def _inside(prepared: Prepared) -> InsideEdge:
    return cast("InsideEdge", prepared.edges["access"])


def left_disks(prepared: Prepared) -> Iterator[Check]:
    """Iterate over the disks that pods of a cluster have left, which are billed, also after its end.

    Raises:
        ProvisioningError: They cannot be listed.
    """
    from kinetic.provisioning.google.networks import disks_of

    if COMPUTE not in prepared.cloud.enabled:
        return
    for name, zone, size in disks_of(prepared.cloud, prepared.place.cluster):
        yield Check(
            f"disk {name}",
            "warn",
            f"{size} GB in {zone}, which nothing uses, about ${size / 10:.0f} a month.",
            f"gcloud compute disks delete {name} --zone={zone} --project={prepared.place.project}",
        )


_INSIDE: Final[Looks] = {"clock": _clock, "submit": _submit, "pools": _pools, "pods": _pods}
_LOOKS: Final[Looks] = {"billing": _billing, "bucket": _bucket, "disks": left_disks, **_INSIDE}
"""By name, what is looked at beside the plan; a look that sees nothing has passed."""


def _failed(name: str, error: KineticError) -> Check:
    return Check(name, "fail", error.message, error.hint or "")
