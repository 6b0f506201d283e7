"""`kinetic batches cancel`."""

from __future__ import annotations

import click

from kinetic_cli.app import App
from kinetic_cli.options import target_options


@click.command("cancel")
@click.argument("group_id")
@target_options(hidden=True)
@click.pass_obj
def command(app: App, group_id: str) -> None:
    """Stop a batch: stop the inputs that run, and start no other. Values that are there stay."""
    batch = app.attach_batch(group_id)
    look = batch._states.look()
    # Of a batch that lost its workers, a wait would start the rest again.
    if look.over and (not look.left or batch._states.find_stop()):
        app.output.line(f"{group_id} had ended already.")
        return
    batch.cancel()
    done = batch.status_counts().get("SUCCEEDED", 0)
    app.output.line(f"Cancelled {group_id}: {done} of {len(batch)} inputs have a value.")
