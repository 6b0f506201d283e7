"""`kinetic jobs exec`."""

from __future__ import annotations

import click

from kinetic_cli.app import App
from kinetic_cli.exit_code import INTERRUPTED
from kinetic_cli.options import job_id_argument, target_options


@click.command("exec")
@click.option(
    "--host",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Which host of the job.",
)
@job_id_argument
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND")
@target_options(hidden=True)
@click.pass_obj
def command(app: App, job_id: str, words: tuple[str, ...], host: int) -> None:
    """Run a command in a running job, with the folder and the environment of its function.

    Its input and output are those of this command, and so is its exit code. The job is left alone.
    """
    from kinetic.jobs.execute import execute

    try:
        code = execute(app.attach(job_id), words, host=host)
    except KeyboardInterrupt:
        app.output.note(f"Stopped; the command may still run in {job_id}, which is left alone.")
        raise click.exceptions.Exit(INTERRUPTED) from None
    raise click.exceptions.Exit(code)
