"""`kinetic jobs cancel`."""

from __future__ import annotations

import click

from kinetic_cli.app import App
from kinetic_cli.options import deletion_options, job_id_argument, target_options


@click.command("cancel")
@job_id_argument
@deletion_options
@target_options(hidden=True)
@click.pass_obj
def command(app: App, job_id: str, cleanup_timeout: float, cleanup_poll_interval: float) -> None:
    """Stop a job. A job that finished first keeps its outcome."""
    from kinetic.job_status import JobStatus

    job = app.attach(job_id)
    job_id = job.job_id
    try:
        job.cancel(cleanup_timeout=cleanup_timeout, cleanup_poll_interval=cleanup_poll_interval)
    except KeyboardInterrupt:
        app.output.warn(f"{job_id} may still run. Repeat: kinetic jobs cancel {job_id}")
        raise
    outcome = job.outcome()
    if outcome.status is JobStatus.SUCCEEDED:
        app.output.line(f"{job_id} had finished already; its value is kept.")
    elif outcome.final is not None and outcome.final.status != "cancelled":
        app.output.line(f"{job_id} had failed already.")
    else:
        app.output.line(f"Cancelled {job_id}.")
