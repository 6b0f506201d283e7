"""`kinetic pool add`."""

from __future__ import annotations

import click

from kinetic_cli.app import App
from kinetic_cli.options import json_option, target_options


@click.command("add")
@click.option(
    "--accelerator", required=True, metavar="NAME", help="That of the jobs, such as v6e-8 or l4x4."
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
@click.option("--name", metavar="NAME", help="Of the pool.  [default: kinetic-ACCELERATOR]")
@click.option("--dry-run", is_flag=True, help="Show the ComputeClass, and change nothing.")
@target_options(hidden=True)
@json_option
@click.pass_obj
def command(
    app: App,
    accelerator: str,
    spot: bool,
    flex_start: bool,
    reservation: str | None,
    on_demand: bool,
    fallback: tuple[str, ...],
    no_fallback: bool,
    min_nodes: int | None,
    name: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Let a cluster make machines for jobs on an accelerator, or change the pool that does.

    What is not given stays as it is.
    """
    from kinetic.provisioning.pools import PoolOptions, add_pool

    ways = {"--spot": spot, "--flex-start": flex_start, "--reservation": bool(reservation)}
    ways["--on-demand"] = on_demand
    if len(given := [way for way, chosen in ways.items() if chosen]) > 1:
        raise click.UsageError(f"{' and '.join(given)} exclude each other.")
    if fallback and no_fallback:
        raise click.UsageError("--fallback and --no-fallback exclude each other.")
    options = PoolOptions(
        flex_start=False if on_demand or reservation else flex_start or None,
        reservation="" if on_demand or flex_start else reservation,
        fallback=fallback if fallback or no_fallback else None,
        min_nodes=min_nodes,
    )
    app.print_warnings()
    done = add_pool(
        app.settings(),
        f"{accelerator}{':spot' * spot}",
        options,
        name=name,
        dry_run=dry_run,
    )
    if as_json or dry_run:
        app.output.json(done.manifest)
        return
    pool = done.pool
    verb = "Added" if done.before is None else "Changed" if done.before != pool else "Unchanged:"
    app.output.line(f"{verb} pool {pool.name}: {', else '.join(map(str, pool.priorities))}.")
    if pool.min_nodes:
        app.output.note(f"{pool.min_nodes} machines are kept, and billed, from now on.")
