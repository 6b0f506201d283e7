"""`kinetic down`: remove a cluster with everything that `kinetic up` made."""

from __future__ import annotations

import sys
from typing import Any

import click

from kinetic_cli.app import App
from kinetic_cli.options import config_option, json_option, target_options
from kinetic_cli.plans import apply_plan, note_disks, note_jobs, plan_document, show_plan


@click.command("down")
@click.option(
    "--delete-data", is_flag=True, help="Delete the bucket of jobs, too: values, logs and outputs."
)
@click.option("--dry-run", is_flag=True, help="Show the plan, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@config_option
@target_options(hidden=True)
@json_option
@click.pass_obj
def command(
    app: App, delete_data: bool, dry_run: bool, yes: bool, config: dict[str, Any], as_json: bool
) -> None:
    """Remove a cluster with everything that `kinetic up` made for it; run again, it continues.

    It shows first what goes and what stays. The bucket of jobs stays unless --delete-data is given, and so do
    enabled APIs, rights of people on what stays, and what Kinetic did not make.
    """
    from kinetic.provisioning.clusters import prepare_down

    app.print_warnings()
    prepared = prepare_down(app.settings(config), delete_data=delete_data)
    if as_json and (dry_run or not prepared.plan.changes):
        app.output.json(plan_document(prepared))
        return
    place, changes = prepared.place, prepared.plan.changes
    if not changes:
        app.output.line(f"Nothing is left to remove of {place.cluster} in {place.project}.")
    if not as_json or (not yes and sys.stdin.isatty()):
        show_plan(app.output, prepared, on_stderr=as_json)
    note_jobs(app.output, prepared)
    if dry_run or not changes:
        note_disks(app.output, prepared)
        return
    loses = any(step.resource.name == place.jobs_bucket and step.detail for step in changes)
    if loses and not yes and sys.stdin.isatty():
        named = click.prompt(
            f"{place.jobs_bucket} holds data, which is deleted. Type the name of the cluster to go on",
            err=True,
        )
        if named != place.cluster:
            raise click.Abort
        yes = True
    apply_plan(app.output, prepared, None if yes else "Remove it?")
    note_disks(app.output, prepared)
    if as_json:
        app.output.json(plan_document(prepared))
    else:
        kept = [step.resource.id for step in prepared.plan.steps if step.action == "keep"]
        left = f" Left: {', '.join(kept)}." if kept else ""
        app.output.line(f"What Kinetic made for the cluster {place.cluster} is gone.{left}")
