"""Pools: ComputeClasses of GKE, each with an ordered list of machines that GKE makes when a job asks for them.

https://cloud.google.com/kubernetes-engine/docs/reference/crds/computeclass; the fields are those of the definition
of August 2026 (API `cloud.google.com/v1`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from kinetic_k8s.accelerators import parse_accelerator
from kinetic_k8s.accelerators.types import Accelerator, Cpu, Gpu, Tpu, describe
from kinetic_k8s.errors import InvalidRequestError
from kinetic_k8s.manifests import Manifest
from kinetic_k8s.manifests.labels import APP, APP_VALUE, PREFIX
from kinetic_k8s.manifests.placement import (
    ACCELERATOR_SELECTORS,
    COUNT,
    SPOT,
    Placement,
    placement_of,
    tolerate,
)

KIND: Final = "ComputeClass"
COMPUTE_CLASS: Final = "cloud.google.com/compute-class"
"""The label, and the taint, of the machines of a class; a pod selects the class by it."""
POOLS: Final = f"{APP}={APP_VALUE}"
"""The selector of the classes that Kinetic made."""
_PRIORITIES: Final = f"{PREFIX}priorities"
"""The annotation with the priorities as Kinetic writes them."""
_FLEX_START: Final = ":flex-start"
_RESERVATION: Final = ":reservation="
_NAME: Final = re.compile(r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?")
_RESERVATION_NAME: Final = re.compile(r"(?:[-a-z0-9:.]+/)?[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?")
_WEEK: Final = 7 * 24 * 3600
"""Seconds; the longest that GKE lends machines of flex-start for."""


@dataclass(frozen=True, kw_only=True)
class Priority:
    """One kind of machines, and how they are bought: spot is part of the accelerator."""

    accelerator: Accelerator
    flex_start: bool = False
    reservation: str | None = None
    """`NAME`, or `PROJECT/NAME` of a reservation that another project shares."""

    def __str__(self) -> str:
        bought = _FLEX_START * self.flex_start
        if self.reservation is not None:
            bought += f"{_RESERVATION}{self.reservation}"
        return f"{self.accelerator}{bought}"


@dataclass(frozen=True, kw_only=True)
class Pool:
    """A ComputeClass that Kinetic made."""

    name: str
    priorities: tuple[Priority, ...]
    """The machines that GKE tries to get, in this order."""
    min_nodes: int = 0
    """Machines that are kept even if no job needs them."""

    @property
    def accelerator(self) -> Accelerator:
        """The accelerator of the jobs that run here: that of the first priority."""
        return self.priorities[0].accelerator


def pool_name(accelerator: Accelerator) -> str:
    """Return the usual name of the pool for jobs on *accelerator*."""
    return f"kinetic-{accelerator.slug}{'-spot' * accelerator.spot}"


def parse_priority(text: str) -> Priority:
    """Return the priority that *text* names: `v6e-8`, `v6e-8:spot`, `v6e-8:flex-start`, `v6e-8:reservation=NAME`.

    Raises:
        UnknownAcceleratorError: There is no such accelerator.
    """
    name, reserved, reservation = text.partition(_RESERVATION)
    return Priority(
        accelerator=parse_accelerator(name.removesuffix(_FLEX_START)),
        flex_start=name.endswith(_FLEX_START),
        reservation=reservation if reserved else None,
    )


def check_pool(pool: Pool) -> None:
    """Refuse a pool that GKE could not make, or whose machines would not be alike for a job.

    Raises:
        InvalidRequestError: The hint says what to write instead.
    """
    first = pool.accelerator
    if not _NAME.fullmatch(pool.name):
        raise InvalidRequestError(
            f"{pool.name!r} cannot be the name of a pool.",
            hint="Use up to 63 lower-case letters, digits and dashes; begin with a letter, end with a letter or digit.",
        )
    for priority in pool.priorities:
        accelerator, reservation = priority.accelerator, priority.reservation
        if reservation is not None and not _RESERVATION_NAME.fullmatch(reservation):
            raise InvalidRequestError(
                f"{reservation!r} is not the name of a reservation.",
                hint="Write NAME or PROJECT/NAME.",
            )
        ways = (accelerator.spot, priority.flex_start, reservation is not None)
        if sum(ways) > 1:
            raise InvalidRequestError(
                f"{priority}: machines are either spot machines, or flex-start, or reserved."
            )
        if _shape(accelerator) != _shape(first):
            raise InvalidRequestError(
                f"{accelerator} cannot stand in for {first}: a job needs the same kind and number of devices, on the "
                f"same number of machines. {describe(first)}; {describe(accelerator)}.",
                hint="Add a pool of its own for it.",
            )
    if pool.min_nodes and any(
        isinstance(each.accelerator, Cpu) and each.reservation is None for each in pool.priorities
    ):
        raise InvalidRequestError(
            "GKE keeps a number of machines only of a pool that says which machines they are, and cpu does not.",
            hint="Leave --min-nodes out.",
        )
    if pool.min_nodes < 0 or pool.min_nodes % first.hosts:
        raise InvalidRequestError(
            f"{pool.min_nodes} machines are no whole number of slices: {describe(first)}.",
            hint=f"Write a multiple of {first.hosts}, or 0.",
        )


def _shape(accelerator: Accelerator) -> tuple[object, ...]:
    """Return what a job notices of *accelerator* besides its speed and memory."""
    arm64 = isinstance(accelerator, Gpu) and accelerator.arm64
    # A chip of TPU7x has two cores, which may be two devices.
    two_cores = isinstance(accelerator, Tpu) and accelerator.generation == "tpu7x"
    return accelerator.kind, accelerator.devices, accelerator.hosts, arm64, two_cores


def class_of(pool: Pool) -> Manifest:
    """Render the ComputeClass of *pool*."""
    spec: Manifest = {
        "description": f"Machines for jobs of Kinetic on {pool.accelerator}",
        "nodePoolAutoCreation": {"enabled": True},
        # Otherwise GKE would make machines of a common kind, on which the job cannot run.
        "whenUnsatisfiable": "DoNotScaleUp",
        "priorities": [_rule(priority) for priority in pool.priorities],
        "minimumCapacity": {"targetNodeCount": pool.min_nodes} if pool.min_nodes else None,
    }
    return {
        "apiVersion": "cloud.google.com/v1",
        "kind": KIND,
        "metadata": {
            "name": pool.name,
            "labels": {APP: APP_VALUE},
            "annotations": {_PRIORITIES: " ".join(map(str, pool.priorities))},
        },
        "spec": {name: value for name, value in spec.items() if value is not None},
    }


def _rule(priority: Priority) -> Manifest:
    accelerator = priority.accelerator
    rule: Manifest
    match accelerator:
        case Cpu():  # GKE's usual machines.
            rule = {} if accelerator.cores is None else {"minCores": accelerator.cores}
        case Gpu():
            gpu = {"type": accelerator.label, "count": accelerator.count}
            rule = {"gpu": {**gpu, "driverVersion": "default"}}
        case Tpu():
            tpu = {"type": accelerator.label, "count": accelerator.chips_per_host}
            rule = {"tpu": {**tpu, "topology": accelerator.topology}}
    if priority.reservation is not None:
        project, slash, name = priority.reservation.rpartition("/")
        specific = {"name": name, **({"project": project} if slash else {})}
        rule["reservations"] = {"affinity": "Specific", "specific": [specific]}
    elif priority.flex_start:
        rule |= {"flexStart": {"enabled": True}, "maxRunDurationSeconds": _WEEK}
    else:
        rule["spot"] = accelerator.spot
    return rule


def pool_of(manifest: Manifest) -> Pool | None:
    """Return the pool that a ComputeClass is; None if Kinetic did not make it, or a later version did."""
    metadata = manifest["metadata"]
    texts = str((metadata.get("annotations") or {}).get(_PRIORITIES, "")).split()
    if (metadata.get("labels") or {}).get(APP) != APP_VALUE or not texts:
        return None
    capacity = manifest["spec"].get("minimumCapacity") or {}
    try:
        return Pool(
            name=metadata["name"],
            priorities=tuple(map(parse_priority, texts)),
            min_nodes=capacity.get("targetNodeCount") or 0,
        )
    except InvalidRequestError:
        return None


def pool_for(accelerator: Accelerator, classes: Iterable[Manifest]) -> Pool | None:
    """Return the pool for jobs on *accelerator* among the *classes* of a cluster, the first by name."""
    pools = sorted(filter(None, map(pool_of, classes)), key=lambda pool: pool.name)
    wanted = [accelerator]
    if isinstance(accelerator, Cpu):
        # Machines of no certain size have as many cores as a job requests.
        wanted.append(replace(accelerator, cores=None))
    return next((pool for each in wanted for pool in pools if pool.accelerator == each), None)


def placement_in(pool: Pool, accelerator: Accelerator, *, exact: bool = False) -> Placement:
    """Return the placement of a pod on one host of *accelerator*, on machines of *pool*.

    It selects what all priorities of the pool have in common; *exact*: only machines of *accelerator*. GKE's
    autoscaler does not expect the number of GPUs as a label of the machines that it is to make; those of a pool
    have the same number.
    """
    own = placement_of(accelerator)
    others = () if exact else [placement_of(each.accelerator) for each in pool.priorities]
    selector = {
        key: value
        for key, value in own.selector.items()
        if key != COUNT
        and (
            key not in {*ACCELERATOR_SELECTORS, SPOT}
            or all(other.selector.get(key) == value for other in others)
        )
    }
    tolerations = [*own.tolerations, tolerate(COMPUTE_CLASS, pool.name)]
    for other in others:
        tolerations += (each for each in other.tolerations if each not in tolerations)
    return Placement(
        selector={**selector, COMPUTE_CLASS: pool.name},
        tolerations=tolerations,
        resources=own.resources,
    )
