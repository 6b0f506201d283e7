"""What jobs on a cluster cost: the time of their attempts, preempted ones included, at the price of their accelerator."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kinetic.backends.registry import entry_of
from kinetic.jobs.services import open_at
from kinetic_k8s.accelerators import parse_accelerator
from kinetic_k8s.accelerators.types import Cpu
from kinetic_k8s.errors import UnknownAcceleratorError
from kinetic_k8s.manifests.compute_class import Priority
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


def cost_of(record: JobRecord, store: Store, prices: Prices, *, now: float | None) -> Cost:
    """Return what a job or a batch has cost.

    An attempt lasts from its first claim to its last report, by the clock of the store; the start and the idle time of
    machines are not in it. The objects are not verified: whoever may write to the bucket can change what is shown.

    Args:
        record: That of the job; of a batch, that of its group.
        store: The store of the job.
        prices: Those of the cluster's region.
        now: Until when an attempt without a report has run, if the job runs; None: it does not.

    Raises:
        StoreError: The objects cannot be listed.
    """
    shown = {info.name: info.updated for info in store.list(JobObjects(record.job_id).prefix)}
    seconds, attempts, unknown = 0.0, 0, 0
    for spans in _spans(shown):
        for number, (begun, reported) in spans.items():
            attempts += 1
            # When an attempt without a report ended, by the loss of its machine say, is not stored.
            end = reported or (now if number == max(spans) else None)
            if begun is None or end is None:
                unknown += 1
            else:
                seconds += max(0.0, end - begun)
    try:
        accelerator = parse_accelerator(record.accelerator)
    except UnknownAcceleratorError:  # One of a later version.
        return Cost(attempts, None, None, complete=False, priced=False)
    if attempts and attempts == unknown:
        return Cost(attempts, None, None, complete=False, priced=False)
    price = prices.of(Priority(accelerator=accelerator))
    devices = 1 if isinstance(accelerator, Cpu) else accelerator.devices
    hours = seconds / 3600
    dollars = 0.0 if not attempts else None if price is None else hours * price.per_hour
    return Cost(
        attempts,
        hours * devices,
        dollars,
        complete=not unknown,
        priced=not unknown and dollars is not None,
    )


def _spans(
    shown: Mapping[str, float],
) -> Iterable[dict[int, tuple[float | None, float | None]]]:
    """Return by attempt, for each job, the times of the first claim and of the last report; None: there is none."""
    found = defaultdict[str, dict[int, tuple[list[float], list[float]]]](dict)
    for name, written in shown.items():
        if match := _ATTEMPT.fullmatch(name):
            times = found[match["job"]].setdefault(int(match["number"]), ([], []))
            times[match["kind"] == "json"].append(written)
    for attempts in found.values():
        yield {
            number: (min(claims, default=None), max(reports, default=None))
            for number, (claims, reports) in attempts.items()
        }


def costs_of(
    jobs: Sequence[tuple[JobRecord, bool]], prices: Prices, now: float
) -> list[Cost | None]:
    """Return what each job has cost, in this order; *jobs* says of each whether it runs.

    Jobs on this machine cost nothing that is known here: None. What cannot be read is not known.
    """
    stores: dict[str, Store] = {}
    paid = [record for record, _ in jobs if not entry_of(record.backend).on_this_machine]
    for name in {record.bucket_name for record in paid}:
        stores[name] = open_at(parse_location(name))

    def cost(job: tuple[JobRecord, bool]) -> Cost | None:
        record, runs = job
        if entry_of(record.backend).on_this_machine:
            return None
        try:
            return cost_of(record, stores[record.bucket_name], prices, now=now if runs else None)
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
