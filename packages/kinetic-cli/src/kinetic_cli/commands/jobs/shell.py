"""`kinetic jobs shell`."""

from __future__ import annotations

import sys

import click

from kinetic_cli.app import App
from kinetic_cli.options import job_id_argument, target_options


@click.command("shell")
@click.option(
    "--host",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Which host of the job.",
)
@job_id_argument
@target_options(hidden=True)
@click.pass_obj
def command(app: App, job_id: str, host: int) -> None:
    """Open a shell in a running job, with the folder and the environment of its function."""
    from kinetic.errors import InvalidRequestError
    from kinetic.jobs.execute import SHELL, execute

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InvalidRequestError(
            "A shell needs a terminal, and stdin or stdout is not one.",
            hint=f"Without one, run a command: kinetic jobs exec {job_id} -- COMMAND",
        )
    raise click.exceptions.Exit(execute(app.attach(job_id), SHELL, host=host, terminal=True))
