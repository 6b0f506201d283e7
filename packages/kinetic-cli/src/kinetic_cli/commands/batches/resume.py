"""`kinetic batches resume`."""

from __future__ import annotations

import click

from kinetic_cli.app import App
from kinetic_cli.commands.batches.list import counts_line
from kinetic_cli.options import target_options


@click.command("resume")
@click.argument("group_id")
@target_options(hidden=True)
@click.pass_obj
def command(app: App, group_id: str) -> None:
    """Start the workers of a batch again that were lost, as a wait for its results does."""
    batch = app.attach_batch(group_id)
    batch.resume()
    app.output.line(counts_line(batch))
