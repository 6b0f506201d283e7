"""`kinetic jobs cleanup`."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import click

from kinetic_cli.app import App
from kinetic_cli.commands.jobs.list import ended_jobs
from kinetic_cli.options import Age, ask, complete_jobs, deletion_options, target_options


@click.command("cleanup")
@click.argument("job_ids", nargs=-1, metavar="JOB_ID...", shell_complete=complete_jobs)
@click.option("--finished", is_flag=True, help="Every job that has ended, instead of JOB_ID.")
@click.option(
    "--older-than",
    type=Age(),
    metavar="AGE",
    help="With --finished, only those that ended so long ago: 7d, 2w, 12h.",
)
@click.option("--yes", is_flag=True, help="Do not ask before --finished removes jobs.")
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
    /,
    job_ids: tuple[str, ...],
    finished: bool,
    older_than: timedelta | None,
    yes: bool,
    **how: Any,
) -> None:
    """Remove the resources and artifacts of jobs; logs and outputs stay.

    A job that still runs is cancelled, if its id is given. --finished never removes one, or a batch, or a job
    whose status cannot be determined.
    """
    from kinetic.errors import KineticError

    if not (how["k8s"] or how["gcs"]):
        raise click.UsageError("--no-k8s and --no-gcs together leave nothing to do.")
    if finished == bool(job_ids):
        raise click.UsageError("Give the ids of jobs, or --finished.")
    if older_than is not None and not finished:
        raise click.UsageError("--older-than belongs to --finished.")
    if finished:
        job_ids = tuple(ended_jobs(app, older_than))
        if not job_ids:
            app.output.note(
                "No job has ended." if older_than is None else "No job ended so long ago."
            )
            return
        if not yes:
            count = len(job_ids)
            jobs = "1 job that has ended" if count == 1 else f"{count:,} jobs that have ended"
            ask(
                f"Remove {jobs}, with their values?",
                otherwise=f"Nothing was removed: there is no terminal to ask whether to remove {jobs}.",
                hint="Run the command with --yes. To see them: kinetic jobs list",
            )
    parts = " and ".join(["its resource"] * how["k8s"] + ["its artifacts"] * how["gcs"])
    failed: list[tuple[str, str]] = []
    for given in job_ids:
        job_id = given
        try:
            job = app.attach(given)
            job_id = job.job_id
            job.cleanup(**how)
        except KeyboardInterrupt:
            again = "--finished" if finished else " ".join(job_ids[job_ids.index(given) :])
            app.output.warn(f"{job_id} may still run. Repeat: kinetic jobs cleanup {again}")
            raise
        except KineticError as error:
            if len(job_ids) == 1:
                raise
            failed.append((job_id, error.message))
            continue
        app.output.line(f"Cleaned up {job_id}: removed {parts}.")
    if failed:
        app.output.warn(f"Error: {len(failed)} of {len(job_ids)} jobs were not cleaned up:")
        for job_id, why in failed:
            app.output.warn(f"  {job_id}: {why}")
        raise click.exceptions.Exit(1)
