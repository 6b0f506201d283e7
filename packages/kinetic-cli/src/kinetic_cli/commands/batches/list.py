"""`kinetic batches list`."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from kinetic_cli.app import App
from kinetic_cli.options import json_option, target_options
from kinetic_cli.output import age_of, age_text

if TYPE_CHECKING:
    from kinetic.batches.handle import BatchHandle
    from kinetic.batches.states import Look


@click.command("list")
@target_options(hidden=True)
@json_option
@click.pass_obj
def command(app: App, as_json: bool) -> None:
    """List batches, newest first."""
    batches = [facts_of(app, batch, look_at(app, batch)) for batch in app.list_batches()]
    if as_json:
        app.output.json(batches)
    elif not batches:
        app.output.note("No batches.")
    else:
        last = ["function", "accelerator", "backend", "name"]
        app.output.table(
            ["batch id", "status", "inputs", "done", "failed", "age", *last],
            (
                (
                    batch["group_id"],
                    batch["status"],
                    batch["inputs"],
                    batch["counts"].get("SUCCEEDED", 0),
                    batch["counts"].get("FAILED", 0) + batch["not_submitted"],
                    age_text(batch["age_seconds"]),
                    *(batch[key] for key in last),
                )
                for batch in batches
            ),
        )


def look_at(app: App, batch: BatchHandle) -> Look | None:
    """Look at *batch*; None, after a note that says why, if it cannot be seen."""
    from kinetic.errors import KineticError

    try:
        return batch._states.look()
    except KineticError as error:
        # An error of one batch must not hide the others.
        app.output.note(f"Warning: the status of {batch.group_id} is unknown: {error.message}")
        return None


def facts_of(app: App, batch: BatchHandle, look: Look | None) -> dict[str, Any]:
    """Return what lists and `kinetic batches status` show of a batch; *look* is None if it cannot be seen."""
    manifest = batch._manifest
    return {
        "group_id": batch.group_id,
        "name": batch.name,
        "tags": batch.tags,
        "status": look and look.status.value,
        "inputs": len(batch),
        "counts": Counter(status.value for status in look.statuses.values()) if look else {},
        "not_submitted": len(manifest.failed),
        "age_seconds": age_of(manifest.created_at, app.clock()),
        "created_at": manifest.created_at,
        "function": manifest.func_name,
        "accelerator": manifest.accelerator,
        "backend": manifest.job_record.backend,
    }


def counts_line(batch: BatchHandle) -> str:
    """Return how many inputs of *batch* have each status."""
    counts = ", ".join(f"{count} {status}" for status, count in batch.status_counts().items())
    return f"{batch.group_id}: {counts}."
