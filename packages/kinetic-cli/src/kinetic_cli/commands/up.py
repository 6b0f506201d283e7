"""`kinetic up`: make a cluster with everything that jobs need."""

from __future__ import annotations

import sys
from typing import Any

import click

from kinetic_cli.app import App
from kinetic_cli.options import config_option, json_option, target_options
from kinetic_cli.plans import apply_plan, check_problems, note_jobs, plan_document, show_plan


@click.command("up")
@click.option(
    "--accelerator",
    "accelerators",
    multiple=True,
    metavar="NAME",
    help="Add a pool for jobs on this accelerator, such as v6e-8 or l4x4:spot; may be repeated.",
)
@click.option(
    "--jobs-namespace",
    "namespaces",
    multiple=True,
    metavar="NAME",
    help="Let jobs run in this namespace; may be repeated.  [default: that of --namespace]",
)
@click.option(
    "--standard", is_flag=True, help="A Standard cluster in a zone, instead of Autopilot."
)
@click.option("--network", metavar="NAME", help="Use this network of yours, and make none.")
@click.option(
    "--subnetwork", metavar="NAME", help="Of --network.  [default: the name of the network]"
)
@click.option(
    "--user",
    "users",
    multiple=True,
    metavar="PRINCIPAL",
    help="Let user:ADDRESS, group:ADDRESS, serviceAccount:ADDRESS or principal://… submit jobs; may be repeated.",
)
@click.option("--no-jobset", is_flag=True, help="Do not install JobSet.")
@click.option(
    "--addon",
    "addons",
    multiple=True,
    type=click.Choice(["lws", "kueue"]),
    help="Install LeaderWorkerSet, or Kueue, unless the cluster has it; may be repeated.",
)
@click.option("--dry-run", is_flag=True, help="Show the plan, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@config_option
@target_options(hidden=True)
@json_option
@click.pass_obj
def command(
    app: App,
    accelerators: tuple[str, ...],
    namespaces: tuple[str, ...],
    standard: bool,
    network: str | None,
    subnetwork: str | None,
    users: tuple[str, ...],
    no_jobset: bool,
    addons: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    config: dict[str, Any],
    as_json: bool,
) -> None:
    """Make a cluster on Google Cloud, with everything that jobs need; run again, it continues.

    It shows first what it will make, and what that costs. Machines are made, and billed, when a job asks for them.
    """
    from kinetic.provisioning.clusters import prepare_up
    from kinetic.provisioning.desired import ClusterOptions
    from kinetic.provisioning.prices import known_prices
    from kinetic.settings.project_file import SETTINGS

    given = {
        "accelerators": accelerators,
        "namespaces": namespaces,
        "addons": addons,
        "standard": standard,
        "network": network,
        "subnetwork": subnetwork,
        "users": users,
    }
    # A network of the command line has its own subnetwork.
    without = (*SETTINGS, "subnetwork") if network else SETTINGS
    options = {key: value for key, value in config.items() if key not in without}
    options |= {key: value for key, value in given.items() if value}
    options |= {"jobset": False} if no_jobset else {}
    if options.get("subnetwork") and not options.get("network"):
        raise click.UsageError("--subnetwork needs --network.")
    app.print_warnings()
    settings = app.settings(config)
    prepared = prepare_up(settings, ClusterOptions(**options))
    plan = prepared.plan
    if not as_json or (plan.changes and not (yes or dry_run) and sys.stdin.isatty()):
        pools = [step for step in plan.changes if step.resource.kind == "pool"]
        location = prepared.place.location
        prices = known_prices(settings, location=location) if pools else None
        show_plan(app.output, prepared, prices, on_stderr=as_json)
    note_jobs(app.output, prepared)
    if as_json and (plan.problems or dry_run):
        app.output.json(plan_document(prepared))
    check_problems(app.output, prepared)
    if dry_run:
        return
    if plan.changes:
        apply_plan(app.output, prepared, "Make it?", yes=yes)
    if as_json:
        app.output.json(plan_document(prepared))
    else:
        place = prepared.place
        app.output.line(
            f"The cluster {place.cluster} is ready. Jobs use it with:\n"
            f"  export KINETIC_PROJECT={place.project} KINETIC_ZONE={place.location} "
            f"KINETIC_CLUSTER={place.cluster}"
        )
