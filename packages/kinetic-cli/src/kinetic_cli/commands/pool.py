"""`kinetic pool`: the machines that a cluster makes for jobs."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Final

import click

from kinetic_cli.app import App
from kinetic_cli.lazy_group import Group
from kinetic_cli.options import ask, complete_accelerators, json_option, target_options
from kinetic_cli.plans import carry_out, cost_per_month, limits_of

if TYPE_CHECKING:
    from kinetic.provisioning.pools import PoolOptions
    from kinetic.provisioning.prices import Prices
    from kinetic_k8s.manifests.compute_class import Priority

_SHOWN: Final = 10
"""Jobs that a question names."""


@click.group("pool", cls=Group)
def command() -> None:
    """Say which machines a cluster makes for jobs; they cost nothing until a job asks for them."""


@command.command("add")
@click.option(
    "--accelerator",
    required=True,
    shell_complete=complete_accelerators,
    metavar="NAME",
    help="That of the jobs, such as v6e-8 or l4x4.",
)
@click.option("--spot", is_flag=True, help="Spot machines, for jobs with `:spot` or spot=True.")
@click.option(
    "--flex-start",
    is_flag=True,
    help="Wait in Google's queue for machines, for at most a week each.",
)
@click.option("--reservation", metavar="[PROJECT/]NAME", help="The machines of this reservation.")
@click.option(
    "--on-demand", is_flag=True, help="Neither of these (again); the default of a new pool."
)
@click.option(
    "--fallback",
    multiple=True,
    metavar="NAME[:spot|:flex-start|:reservation=NAME]",
    help="Machines that stand in if the first are not to be had; may be repeated.",
)
@click.option("--no-fallback", is_flag=True, help="Let nothing stand in any more.")
@click.option(
    "--min-nodes",
    type=click.IntRange(min=0),
    metavar="N",
    help="Keep so many machines, which are billed, even if no job needs them.",
)
@click.option(
    "--node-pool",
    is_flag=True,
    help="Make a plain node pool, for a cluster that makes none by itself; for each slice of several machines one.",
)
@click.option(
    "--max-nodes",
    type=click.IntRange(min=1),
    metavar="N",
    help="With --node-pool: the most machines, in whole slices.",
)
@click.option(
    "--slices",
    type=click.IntRange(min=1),
    metavar="N",
    help="With --node-pool: the most slices.  [default: 1]",
)
@click.option("--name", metavar="NAME", help="Of the pool.  [default: kinetic-ACCELERATOR]")
@click.option(
    "--dry-run", is_flag=True, help="Show the ComputeClass, or the plan, and change nothing."
)
@target_options(hidden=True)
@json_option
@click.pass_obj
def add(
    app: App,
    accelerator: str,
    spot: bool,
    flex_start: bool,
    reservation: str | None,
    on_demand: bool,
    fallback: tuple[str, ...],
    no_fallback: bool,
    min_nodes: int | None,
    node_pool: bool,
    max_nodes: int | None,
    slices: int | None,
    name: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Let a cluster make machines for jobs on an accelerator, or change the pool that does.

    What is not given stays as it is.
    """
    from kinetic.provisioning.pools import PoolOptions, add_pool
    from kinetic.provisioning.prices import known_prices

    ways = {"--spot": spot or accelerator.lower().endswith(":spot"), "--flex-start": flex_start}
    ways |= {"--reservation": reservation is not None, "--on-demand": on_demand}
    if len(given := [way for way, chosen in ways.items() if chosen]) > 1:
        raise click.UsageError(f"{' and '.join(given)} exclude each other.")
    if fallback and no_fallback:
        raise click.UsageError("--fallback and --no-fallback exclude each other.")
    options = PoolOptions(
        flex_start=False if on_demand else flex_start or None,
        reservation=reservation,
        fallback=fallback if fallback or no_fallback else None,
        min_nodes=min_nodes,
        max_nodes=max_nodes,
        slices=slices,
    )
    app.print_warnings()
    wanted = f"{accelerator}{':spot' * spot}"
    if node_pool:
        _add_node_pools(app, wanted, options, name, dry_run=dry_run, as_json=as_json)
        return
    done = add_pool(app.settings(), wanted, options, name=name, dry_run=dry_run)
    if as_json or dry_run:
        app.output.json(done.manifest)
        return
    pool = done.pool
    verb = "Added" if done.before is None else "Changed" if done.before != pool else "Unchanged:"
    app.output.line(f"{verb} pool {pool.name}: {', else '.join(map(str, pool.priorities))}.")
    if pool.min_nodes:
        _note_kept(app, known_prices(app.settings()), pool.priorities[0], pool.min_nodes)


def _note_kept(app: App, prices: Prices, priority: Priority, machines: int) -> None:
    month = cost_per_month(prices, priority, machines)
    app.output.note(f"{machines} machines are kept, and billed, from now on: {month} a month.")


def _add_node_pools(
    app: App,
    accelerator: str,
    options: PoolOptions,
    name: str | None,
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    from kinetic.provisioning.node_pools import prepare_node_pools
    from kinetic.provisioning.prices import known_prices
    from kinetic_k8s.manifests.compute_class import parse_priority

    settings = app.settings()
    prepared = prepare_node_pools(settings, accelerator, options, name=name)
    if not carry_out(app.output, prepared, settings, None, dry_run=dry_run, as_json=as_json):
        return
    for step in prepared.plan.steps:
        verb = {"create": "Added", "change": "Changed"}.get(step.action, "Unchanged:")
        pool = step.resource.name.rpartition("/")[2]
        machines = step.resource.settings["machines"]
        app.output.line(f"{verb} node pool {pool}: {machines}, {limits_of(step)}.")
    if kept := sum(step.resource.settings["min_nodes"] for step in prepared.plan.steps):
        prices = known_prices(settings, location=prepared.place.location)
        _note_kept(app, prices, parse_priority(machines), kept)


@command.command("list")
@target_options(hidden=True)
@json_option
@click.pass_obj
def list_(app: App, as_json: bool) -> None:
    """List the pools of a cluster: their machines, what GKE reports of them, and the jobs that use them."""
    from kinetic.provisioning.pools import list_pools
    from kinetic.provisioning.prices import known_prices

    app.print_warnings()
    settings = app.settings()
    pools = list_pools(settings)
    known = known_prices(settings, ask=bool(pools))
    prices = {status.pool.name: known.of(status.pool.priorities[0]) for status in pools}
    if as_json:
        app.output.json(
            [
                {
                    "name": status.pool.name,
                    "accelerator": str(status.pool.accelerator),
                    "kind": "class" if status.is_class else "node pool",
                    "priorities": [asdict(priority) for priority in status.priorities],
                    "min_nodes": status.pool.min_nodes,
                    "max_nodes": status.max_nodes,
                    "nodes": status.nodes,
                    "jobs": status.used_by,
                    "problem": status.problem or None,
                    "price_per_hour": price and round(price.per_hour, 4),
                    "price_source": price and price.source,
                }
                for status in pools
                for price in [prices[status.pool.name]]
            ]
        )
        return
    if not pools:
        app.output.note("No pools. Add one with: kinetic pool add --accelerator NAME")
        return
    app.output.table(
        ["pool", "nodes", "min", "max", "jobs", "price", "machines"],
        (
            (
                status.pool.name,
                status.nodes,
                status.pool.min_nodes,
                status.max_nodes,
                len(status.used_by),
                prices[status.pool.name] or "unknown",
                ", else ".join(map(str, status.priorities)),
            )
            for status in pools
        ),
    )
    for source in sorted({price.source for price in prices.values() if price}):
        app.output.note(f"Prices, of the first machines while they exist: {source}.")
    for status in pools:
        if status.problem:
            app.output.warn(f"GKE cannot use the pool {status.pool.name}: {status.problem}")


@command.command("remove")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask if jobs run or wait there.")
@target_options(hidden=True)
@click.pass_obj
def remove(app: App, name: str, yes: bool) -> None:
    """Remove a pool. Its machines go once nothing runs on them; those of a node pool go at once."""
    from kinetic.provisioning.pools import find_pool, remove_pool

    app.print_warnings()
    settings = app.settings()
    pool = find_pool(settings, name)
    jobs = pool.used_by
    if jobs and not yes:
        more = f" and {len(jobs) - _SHOWN} more" if len(jobs) > _SHOWN else ""
        used = f"Jobs run or wait in the pool {name}: {', '.join(jobs[:_SHOWN])}{more}."
        go_on = "go on" if pool.is_class else "on its machines are stopped"
        ask(
            f"{used} Those that run {go_on}, and those that wait get no machine. Remove it?",
            otherwise=used,
            hint=f"Remove it all the same with: kinetic pool remove {name} --yes",
        )
    remove_pool(settings, name)
    app.output.line(f"Removed pool {name}.")
