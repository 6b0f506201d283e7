"""`kinetic jobs logs`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from kinetic_cli.app import App
from kinetic_cli.exit_code import INTERRUPTED
from kinetic_cli.options import AttemptNumber, Count, job_id_argument, json_option, target_options

if TYPE_CHECKING:
    from kinetic.backends.backend import LogLine


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
    try:
        for line in _lines(app, job_id, follow=follow, **part):
            if as_json:
                document = {"host": line.host, "attempt": line.attempt, "text": line.text}
                app.output.json(document, lines=True)
            else:
                app.output.line(line.shown, flush=follow)
    except KeyboardInterrupt:
        app.output.note(f"Stopped following; {job_id} is left alone.")
        raise click.exceptions.Exit(INTERRUPTED) from None


def _lines(app: App, job_id: str, *, follow: bool, **part: Any) -> Iterator[LogLine]:
    from kinetic.errors import JobNotFoundError
    from kinetic.jobs.discover import kept_log

    try:
        return app.attach(job_id).log_lines(follow=follow, **part)
    except JobNotFoundError:
        kept = kept_log(job_id, app.settings(), **part)
        if kept is None:
            raise
        return kept
