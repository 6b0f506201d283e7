"""`kinetic up`: make a cluster with everything that jobs need."""

from __future__ import annotations

from typing import Any

import click

from kinetic_cli.app import App
from kinetic_cli.options import complete_accelerators, config_option, json_option, target_options
from kinetic_cli.plans import carry_out, cluster_options


@click.command("up")
@click.option(
    "--accelerator",
    "accelerators",
    multiple=True,
    shell_complete=complete_accelerators,
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
    "--standard/--no-standard",
    default=None,
    help="A Standard cluster in a zone, instead of Autopilot.",
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
@click.option(
    "--jobset/--no-jobset", default=None, help="Install JobSet, unless the cluster has it, or not."
)
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
    app: App, /, config: dict[str, Any], dry_run: bool, yes: bool, as_json: bool, **given: Any
) -> None:
    """Make a cluster on Google Cloud, with everything that jobs need; run again, it continues.

    It shows first what it will make, and what that costs. Machines are made, and billed, when a job asks for them.
    """
    from kinetic.provisioning.clusters import prepare_up

    # A network of the command line has its own subnetwork.
    kept = {
        key: value for key, value in config.items() if key != "subnetwork" or not given["network"]
    }
    options = kept | {key: value for key, value in given.items() if value not in (None, "", ())}
    if options.get("subnetwork") and not options.get("network"):
        raise click.UsageError("--subnetwork needs --network.")
    app.print_warnings()
    settings = app.settings(config)
    prepared = prepare_up(settings, cluster_options(options))
    place = prepared.place
    if carry_out(
        app.output, prepared, settings, "Make it?", yes=yes, dry_run=dry_run, as_json=as_json
    ):
        app.output.line(
            f"The cluster {place.cluster} is ready. Jobs use it with:\n"
            f"  export KINETIC_PROJECT={place.project} KINETIC_ZONE={place.location} "
            f"KINETIC_CLUSTER={place.cluster}"
        )
