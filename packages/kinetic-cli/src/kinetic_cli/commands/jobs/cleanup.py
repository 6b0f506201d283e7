"""`kinetic jobs cleanup`."""

from __future__ import annotations

import click

from kinetic_cli.app import App
from kinetic_cli.options import deletion_options, job_id_argument, target_options


@click.command("cleanup")
@job_id_argument
@click.option(
    "--k8s/--no-k8s", default=True, show_default=True, help="Remove the resource that runs the job."
)
@click.option(
    "--gcs/--no-gcs",
    default=True,
    show_default=True,
    help="Remove the artifacts of the job in the store.",
)
@deletion_options
@target_options(hidden=True)
@click.pass_obj
def command(
    app: App,
    job_id: str,
    k8s: bool,
    gcs: bool,
    cleanup_timeout: float,
    cleanup_poll_interval: float,
) -> None:
    """Remove a job's resource and artifacts; logs and outputs stay.

    A job that still runs is cancelled.
    """
    if not (k8s or gcs):
        raise click.UsageError("--no-k8s and --no-gcs together leave nothing to do.")
    job = app.attach(job_id)
    try:
        job.cleanup(
            k8s=k8s,
            gcs=gcs,
            cleanup_timeout=cleanup_timeout,
            cleanup_poll_interval=cleanup_poll_interval,
        )
    except KeyboardInterrupt:
        app.output.note(f"{job_id} may still run. Repeat: kinetic jobs cleanup {job_id}")
        raise
    removed = " and ".join(["its resource"] * k8s + ["its artifacts"] * gcs)
    app.output.line(f"Cleaned up {job_id}: removed {removed}.")
