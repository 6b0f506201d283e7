"""`kinetic batches cleanup`."""

from __future__ import annotations

import sys

import click

from kinetic_cli.app import App
from kinetic_cli.options import target_options


@click.command("cleanup")
@click.argument("group_id")
@click.option("--yes", is_flag=True, help="Do not ask before a batch that still runs is cancelled.")
@target_options(hidden=True)
@click.pass_obj
def command(app: App, group_id: str, yes: bool) -> None:
    """Remove a batch with all of its values; logs and outputs stay. If it still runs, it is cancelled."""
    from kinetic.errors import InvalidRequestError

    batch = app.attach_batch(group_id)
    look = batch._states.look()
    if not (look.over or yes):
        running = f"{group_id} still runs: {len(look.left)} of {len(batch)} inputs have not ended."
        if not sys.stdin.isatty():
            again = f"kinetic batches cleanup {group_id} --yes"
            raise InvalidRequestError(running, hint=f"Cancel it and remove it with: {again}")
        click.confirm(f"{running} Cancel it, and remove it?", abort=True, err=True)
    batch.cleanup()
    app.output.line(f"Cleaned up {group_id}.")
