"""`kinetic up`: make a cluster with everything that jobs need."""

from __future__ import annotations

import click

from kinetic_cli.app import App
from kinetic_cli.options import json_option, target_options
from kinetic_cli.plans import apply_plan, check_problems, plan_document, show_plan


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
    no_jobset: bool,
    addons: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Make a cluster on Google Cloud, with everything that jobs need; run again, it continues.

    It shows first what it will make, and what that costs. Machines are made, and billed, when a job asks for them.
    """
    from kinetic.provisioning.clusters import prepare_up
    from kinetic.provisioning.desired import ClusterOptions

    if subnetwork and not network:
        raise click.UsageError("--subnetwork needs --network.")
    options = ClusterOptions(
        accelerators=accelerators,
        namespaces=namespaces,
        standard=standard,
        jobset=not no_jobset,
        addons=addons,
        network=network,
        subnetwork=subnetwork,
    )
    app.print_warnings()
    prepared = prepare_up(app.settings(), options)
    plan = prepared.plan
    if not as_json:
        show_plan(app.output, prepared)
    elif plan.problems or dry_run:
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
