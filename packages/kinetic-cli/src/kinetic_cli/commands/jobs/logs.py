"""`kinetic jobs logs`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from kinetic_cli.app import App
from kinetic_cli.exit_code import INTERRUPTED
from kinetic_cli.options import Count, job_id_argument, json_option, target_options

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
@target_options(hidden=True)
@json_option
@click.pass_obj
def command(app: App, job_id: str, follow: bool, tail: int | None, as_json: bool) -> None:
    """Print a job's log, even if the job was cleaned up.

    With --json, print one document on each line: host, attempt, text.
    """
    try:
        for line in _lines(app, job_id, follow=follow, tail=tail):
            if as_json:
                document = {"host": line.host, "attempt": line.attempt, "text": line.text}
                app.output.json(document, lines=True)
            else:
                app.output.line(line.shown, flush=follow)
    except KeyboardInterrupt:
        app.output.note(f"Stopped following; {job_id} is left alone.")
        raise click.exceptions.Exit(INTERRUPTED) from None


def _lines(app: App, job_id: str, *, follow: bool, tail: int | None) -> Iterator[LogLine]:
    from kinetic.errors import JobNotFoundError
    from kinetic.jobs.discover import kept_log

    try:
        return app.attach(job_id).log_lines(follow=follow, tail=tail)
    except JobNotFoundError:
        kept = kept_log(job_id, app.settings(), tail=tail)
        if kept is None:
            raise
        return kept
