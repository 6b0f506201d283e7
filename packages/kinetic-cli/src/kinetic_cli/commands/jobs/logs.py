"""`kinetic jobs logs`."""

from __future__ import annotations

from typing import Any

import click

from kinetic_cli.app import App
from kinetic_cli.exit_code import INTERRUPTED
from kinetic_cli.options import AttemptNumber, Count, job_id_argument, json_option, target_options


@click.command("logs")
@job_id_argument
@click.option("-f", "--follow", is_flag=True, help="Keep printing until the job ends.")
@click.option(
    "-n",
    "--tail",
    type=Count(min=0),
    metavar="LINES",
    help="Begin this many lines before the end.",
)
@click.option(
    "--attempt",
    type=AttemptNumber(min=1),
    metavar="N|all",
    help="Print the log of this attempt, or of all attempts. Without it: of the latest one.",
)
@target_options(hidden=True)
@json_option
@click.pass_obj
def command(app: App, /, job_id: str, follow: bool, as_json: bool, **part: Any) -> None:
    """Print a job's log, even if the job was cleaned up.

    With --json, print one document on each line: host, attempt, text.
    """
    from kinetic.errors import JobNotFoundError
    from kinetic.jobs.discover import kept_log

    try:
        try:
            lines = app.attach(job_id).log_lines(follow=follow, **part)
        except JobNotFoundError:
            kept = kept_log(job_id, app.settings(), **part)
            if kept is None:
                raise
            lines = kept
        for line in lines:
            if as_json:
                document = {"host": line.host, "attempt": line.attempt, "text": line.text}
                app.output.json(document, lines=True)
            else:
                app.output.line(line.shown, flush=follow)
    except KeyboardInterrupt:
        app.output.note(f"Stopped following; {job_id} is left alone.")
        raise click.exceptions.Exit(INTERRUPTED) from None
