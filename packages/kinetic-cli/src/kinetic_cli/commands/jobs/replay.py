"""`kinetic jobs replay`."""

from __future__ import annotations

from dataclasses import replace

import click

from kinetic_cli.app import App
from kinetic_cli.options import job_id_argument, target_options
from kinetic_cli.values import text_of


@click.command("replay")
@job_id_argument
@click.option(
    "--pdb",
    is_flag=True,
    help="Run it in the foreground, and debug the exception that its function raises.",
)
@target_options(hidden=True)
@click.pass_obj
def command(app: App, job_id: str, pdb: bool) -> None:
    """Run a job's own call, with the project as it was, once more on this machine.

    It is a local job in the Python of this command, in the shape of the accelerator; the job itself is left alone.
    Captured environment variables have the values that they have here.
    """
    from kinetic.submit.blocking_call import call
    from kinetic.submit.replay import PastCall

    past = PastCall(app.attach(job_id))
    if pdb:
        raise click.exceptions.Exit(past.debug())
    shown = replace(past.request.settings, progress=app.settings().progress)
    request = replace(past.request, settings=shown)
    value = call(request, past.submit, (), {}, submit=past.submit)
    app.output.line(text_of(value)[0])
