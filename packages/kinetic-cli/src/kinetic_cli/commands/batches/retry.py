"""`kinetic batches retry`."""

from __future__ import annotations

import click

from kinetic_cli.app import App
from kinetic_cli.commands.batches.list import counts_line
from kinetic_cli.options import target_options


@click.command("retry")
@click.argument("group_id")
@target_options(hidden=True)
@click.pass_obj
def command(app: App, group_id: str) -> None:
    """Run the inputs of a batch again that failed or were never started."""
    batch = app.attach_batch(group_id)
    batch.retry_failed()
    app.output.line(counts_line(batch))
