"""What jobs on a cluster cost: the time of their attempts, preempted ones included, at the price of their accelerator."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from kinetic.backends.registry import entry_of
from kinetic.jobs.services import open_at
from kinetic_k8s.accelerators import parse_accelerator
from kinetic_k8s.accelerators.types import Cpu
from kinetic_k8s.errors import UnknownAcceleratorError
from kinetic_k8s.manifests.compute_class import Priority
from kinetic_k8s.manifests.names import region_of
from kinetic_payload.errors import StoreError
from kinetic_payload.layout import JobObjects
from kinetic_payload.stores.store import Store, parse_location
from kinetic_payload.threads import parallel_map

if TYPE_CHECKING:
    from kinetic.provisioning.prices import Prices
    from kinetic_payload.records.job import JobRecord

_ATTEMPT: Final = re.compile(
    r"(?P<job>.*)attempts/(?P<number>\d{1,9})/host-\d{1,9}\.(?P<kind>claim|json)"
)
_THREADS: Final = 32


@dataclass(frozen=True)
class Cost:
    """The time that jobs have used accelerators, and what that costs."""

    attempts: int = 0
    hours: float | None = 0.0
    """Hours of chips, GPUs, or CPU jobs; None: none of them is known."""
    dollars: float | None = 0.0
    """None: the price, or the time, is not known."""
    complete: bool = True
    """Whether these are all hours; otherwise there are at least so many."""
    priced: bool = True
    """Whether these are all dollars."""

    def document(self) -> dict[str, object]:
        """Return it as JSON; docs/cli.md describes it."""
        return {
            "attempts": self.attempts,
            "accelerator_hours": None if self.hours is None else round(self.hours, 3),
            "cost_usd": None if self.dollars is None else round(self.dollars, 2),
            "hours_complete": self.complete,
            "cost_complete": self.priced,
        }


def cost_of(record: JobRecord, store: Store, prices: Prices, *, pending: bool) -> Cost:
    """Return what a job or a batch has cost.

    An attempt lasts from its first claim to its last report, by the clock of the store; the start and the idle time of
    machines are not in it. The objects are not verified: whoever may write to the bucket can change what is shown.

    Args:
        record: That of the job; of a batch, that of its group.
        store: The store of the job.
        prices: Those of any region.
        pending: Whether no attempt has begun; otherwise a job without attempts has lost them.

    Raises:
        StoreError: The objects cannot be listed.
    """
    found = defaultdict[tuple[str, str], tuple[list[float], list[float]]](lambda: ([], []))
    for info in store.list(JobObjects(record.job_id).prefix):
        if match := _ATTEMPT.fullmatch(info.name):
            found[match["job"], match["number"]][match["kind"] == "json"].append(info.updated)
    # When a host without a report ended, by the loss of its machine say, is not stored.
    seconds = [
        max(0.0, max(reports) - min(claims))
        for claims, reports in found.values()
        if 0 < len(claims) <= len(reports)
    ]
    unknown = Cost(len(found), None, None, complete=False, priced=False)
    if not found:
        return Cost() if pending else unknown
    try:
        accelerator = parse_accelerator(record.accelerator)
    except UnknownAcceleratorError:  # One of a later version.
        return unknown
    region = None if record.kube_context else region_of(record.zone)
    price = replace(prices, region=region).of(Priority(accelerator=accelerator))
    devices = 1 if isinstance(accelerator, Cpu) else accelerator.devices
    hours = sum(seconds) / 3600
    complete = len(seconds) == len(found)
    return Cost(
        len(found),
        hours * devices,
        None if price is None else hours * price.per_hour,
        complete=complete,
        priced=complete and price is not None,
    )


def costs_of(jobs: Sequence[tuple[JobRecord, bool]], prices: Prices) -> list[Cost | None]:
    """Return what each job has cost, in this order; *jobs* says of each whether it has yet to begin.

    Jobs on this machine cost nothing that is known here: None. What cannot be read is not known.
    """
    stores: dict[str, Store] = {}
    paid = [record for record, _ in jobs if not entry_of(record.backend).on_this_machine]
    for name in {record.bucket_name for record in paid}:
        stores[name] = open_at(parse_location(name))

    def cost(job: tuple[JobRecord, bool]) -> Cost | None:
        record, pending = job
        if entry_of(record.backend).on_this_machine:
            return None
        try:
            return cost_of(record, stores[record.bucket_name], prices, pending=pending)
        except StoreError:
            return Cost(0, None, None, complete=False, priced=False)

    return parallel_map(cost, jobs, threads=_THREADS)


def total(costs: Iterable[Cost]) -> Cost:
    """Return the sum of *costs*: of what is known of them."""
    found = list(costs)
    hours = [each.hours for each in found if each.hours is not None]
    dollars = [each.dollars for each in found if each.dollars is not None]
    return Cost(
        sum(each.attempts for each in found),
        sum(hours) if hours else None,
        sum(dollars) if dollars else None,
        complete=all(each.complete for each in found),
        priced=all(each.priced for each in found),
    )
