"""`kinetic jobs logs`."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import click

from kinetic_cli.app import App
from kinetic_cli.exit_code import INTERRUPTED
from kinetic_cli.options import AttemptNumber, job_id_argument, json_option, target_options


@click.command("logs")
@job_id_argument
@click.option("-f", "--follow", is_flag=True, help="Keep printing until the job ends.")
@click.option(
    "-n",
    "--tail",
    type=click.IntRange(min=0),
    metavar="LINES",
    help="Begin this many lines before the end.",
)
@click.option(
    "--attempt",
    type=AttemptNumber(min=1),
    metavar="N|all",
    help="Print the log of this attempt, or of all attempts. Without it: of the latest one.",
)
@click.option("--all-hosts", is_flag=True, help="Print a line of each host, also if all are equal.")
@target_options(hidden=True)
@json_option
@click.pass_obj
def command(
    app: App, /, job_id: str, follow: bool, all_hosts: bool, as_json: bool, **part: Any
) -> None:
    """Print a job's log, even if the job was cleaned up: what it wrote to stderr on stderr.

    Of several hosts, each line names its host; a line that is equal on all of them is printed once, with their number.
    With --json, print one document on each line: host, attempt, stream, text.
    """
    from kinetic.errors import JobNotFoundError
    from kinetic.jobs.discover import kept_log

    printer = app.output.log_printer(flush=follow, all_hosts=all_hosts)
    try:
        try:
            job = app.attach(job_id)
            job_id = job.job_id
            if follow and not as_json:
                lines = job._followed_parts(**part)  # noqa: SLF001 - not for users, who want lines
            else:
                lines = job.log_lines(follow=follow, **part)
        except JobNotFoundError as error:
            # A shortened id is that of a job that was cleaned up.
            job_id = error.job_id or job_id
            kept = kept_log(job_id, app.settings(), **part)
            if kept is None:
                raise
            lines = kept
        with closing(printer):
            for line in lines:
                if as_json:
                    document = {"host": line.host, "attempt": line.attempt, "stream": line.stream}
                    app.output.json({**document, "text": line.text}, lines=True)
                else:
                    printer.line(line)
    except KeyboardInterrupt:
        app.output.note(f"Stopped following; {job_id} is left alone.")
        raise click.exceptions.Exit(INTERRUPTED) from None
