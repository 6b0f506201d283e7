"""Plans of `kinetic up` and `kinetic down`: their table, the question, and the progress."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from kinetic_cli.options import ask
from kinetic_cli.output import Output

if TYPE_CHECKING:
    from kinetic.provisioning.clusters import Prepared
    from kinetic.provisioning.desired import ClusterOptions
    from kinetic.provisioning.plan import Step
    from kinetic.provisioning.prices import Prices
    from kinetic.settings.settings import Settings
    from kinetic_k8s.manifests.compute_class import Priority

_COSTS: Final = {
    "cluster": "$73, the first $0",
    "router": "$1/node, $0.045/GB",
    "bucket": "$0.02/GB",
    "repository": "$0.10/GB",
}
"""Of a month, in US dollars, 2026-11: https://cloud.google.com/kubernetes-engine/pricing, .../nat/pricing,
.../storage/pricing, .../artifact-registry/pricing."""
_TIMES: Final = {
    ("create", "cluster"): "5-10 min",
    ("replace", "cluster"): "10-20 min",
    ("delete", "cluster"): "5-10 min",
    ("create", "APIs"): "1 min",
    ("create", "JobSet"): "2 min",
    ("create", "LeaderWorkerSet"): "2 min",
    ("create", "Kueue"): "2 min",
    ("create", "node pool"): "2-5 min",
}
_CONTINUES: Final = "Run the command again: it continues."


def cluster_options(keys: Mapping[str, Any]) -> ClusterOptions:
    """Return what *keys*, as those of `kinetic.toml`, say of a cluster beside the settings."""
    from kinetic.provisioning.desired import ClusterOptions
    from kinetic.settings.project_file import SETTINGS

    return ClusterOptions(**{key: value for key, value in keys.items() if key not in SETTINGS})


def show_plan(
    output: Output, prepared: Prepared, prices: Prices | None = None, *, on_stderr: bool = False
) -> None:
    """Print what will be done, and what stays, in 80 to 100 columns."""
    from kinetic_k8s.manifests.compute_class import parse_priority
    from kinetic_payload.printable import printable_line

    plan, place = prepared.plan, prepared.place
    output.note(f"Cluster {place.cluster} in {place.location}, project {place.project}")
    stdout = Output(stdout=output.stderr) if on_stderr else output
    width = min(max(shutil.get_terminal_size((100, 24)).columns, 80), 100)
    rows = [("ACTION", "TAKES", "COST PER MONTH", "WHAT")] if plan.steps else []
    for step in plan.steps:
        made, kind = step.action in ("create", "replace"), step.resource.kind
        takes, cost = _TIMES.get((step.action, kind)), _COSTS.get(kind) if made else None
        why, kept = f": {step.detail}" if step.detail else "", 0
        machines = step.resource.name
        if kind == "node pool":
            machines, kept = (step.resource.settings[key] for key in ("machines", "min_nodes"))
            why = why or f": {machines}, {limits_of(step)}"
        if (
            kind.endswith("pool")
            and prices is not None
            and (made or (kept and step in plan.changes))
        ):
            price = prices.of(priority := parse_priority(machines))
            cost = f"{price} in use" if price else "unknown"
            cost = cost_per_month(prices, priority, kept) if kept else cost
        rows.append((step.action, takes or "-", cost or "-", step.resource.id + why))
    for action, takes, cost, what in rows:
        head = f"{action:<7}  {takes:<9}  {cost:<18}  "
        wrapped = textwrap.wrap(
            printable_line(what),
            width - len(head),
            break_long_words=False,
            break_on_hyphens=False,
        )
        stdout.line(f"\n{' ' * len(head)}".join([head + wrapped[0], *wrapped[1:]]))
    if not plan.changes and not plan.problems:
        output.note("Nothing to do.")
    if prices is not None and any(step.resource.kind == "pool" for step in plan.changes):
        output.note("A pool costs that while a job runs on its machines, and nothing until then.")


def limits_of(step: Step) -> str:
    """Return how many machines the node pool of *step* has."""
    wanted = step.resource.settings
    return f"{wanted['min_nodes']} to {wanted['max_nodes']} machines"


def cost_per_month(prices: Prices, priority: Priority, machines: int) -> str:
    """Return what *machines* cost that are kept."""
    from kinetic.provisioning.prices import HOURS_PER_MONTH

    hours = machines / priority.accelerator.hosts * HOURS_PER_MONTH
    price = prices.of(priority)
    return f"${price.per_hour * hours:,.0f}" if price else "an unknown amount"


def note_jobs(output: Output, prepared: Prepared) -> None:
    """Name the jobs that have not ended, if the plan removes their cluster."""
    from kinetic.errors import KineticError
    from kinetic.provisioning.clusters import running_jobs

    try:
        jobs = running_jobs(prepared)
    except KineticError as error:
        output.warn(f"Whether jobs run there cannot be seen: {error.message}")
    else:
        if jobs:
            output.warn(f"Jobs that run or wait there end: {', '.join(jobs)}.")


def note_disks(output: Output, prepared: Prepared) -> None:
    """Name the disks that pods of the cluster have left, with the line that removes each."""
    from kinetic.errors import KineticError
    from kinetic.provisioning.doctor import left_disks

    with suppress(KineticError):  # `kinetic doctor` says why they cannot be listed.
        for check in left_disks(prepared):
            output.note(f"The {check.name} stays: {check.message}\n  {check.fix}")


def carry_out(
    output: Output,
    prepared: Prepared,
    settings: Settings,
    question: str | None,
    *,
    yes: bool = False,
    dry_run: bool = False,
    as_json: bool = False,
) -> bool:
    """Show the plan, ask, and perform it; return whether the end is to be reported, as there is no JSON.

    Without a *question* it is not shown, unless it is only a dry run, and performed at once.

    Raises:
        ProvisioningError: The plan has problems.
        InvalidRequestError: There is nobody to ask.
    """
    from kinetic.errors import ProvisioningError
    from kinetic.provisioning.prices import known_prices

    plan = prepared.plan
    asks = question and plan.changes and not (yes or dry_run) and sys.stdin.isatty()
    if asks or (not as_json and (question or dry_run)):
        pools = any(step.resource.kind.endswith("pool") for step in plan.changes)
        prices = known_prices(settings, location=prepared.place.location) if pools else None
        show_plan(output, prepared, prices, on_stderr=as_json)
    note_jobs(output, prepared)
    if as_json and (plan.problems or dry_run):
        output.json(plan_document(prepared))
    first, *others = plan.problems or (None,)
    for problem in others:
        output.warn(f"Error: {problem.message}\n{problem.hint}")
    if first is not None:
        raise ProvisioningError(first.message, hint=first.hint)
    if dry_run:
        return False
    if plan.changes:
        apply_plan(output, prepared, None if yes else question)
    if as_json:
        output.json(plan_document(prepared))
    return not as_json


def apply_plan(output: Output, prepared: Prepared, question: str | None) -> None:
    """Ask, and perform the plan; each step is a line on stderr.

    Raises:
        InvalidRequestError: There is nobody to ask.
    """
    from kinetic.errors import KineticError

    if question:
        ask(
            question,
            otherwise="Nothing was changed: there is no terminal to ask on.",
            hint="Run the command with --yes, or with --dry-run to see the plan only.",
        )

    def report(step: Step, what: str) -> None:
        output.note(f"{'…' if what == 'begun' else '✓'} {step.action} {step.resource.id}")

    try:
        prepared.apply(report)
    except KeyboardInterrupt as error:
        for line in (*getattr(error, "__notes__", ()), _CONTINUES):
            output.warn(line)
        raise
    except KineticError as error:
        if hasattr(error, "__notes__") and "continues" not in (error.hint or ""):
            error.add_note(_CONTINUES)
        raise


def plan_document(prepared: Prepared) -> dict[str, Any]:
    """Return the plan as JSON; docs/cli.md describes it."""
    place, plan = prepared.place, prepared.plan
    return {
        "project": place.project,
        "location": place.location,
        "cluster": place.cluster,
        "steps": [
            {
                "action": step.action,
                "kind": step.resource.kind,
                "name": step.resource.name,
                "detail": step.detail or None,
            }
            for step in plan.steps
        ],
        "problems": [{"message": each.message, "hint": each.hint} for each in plan.problems],
    }
