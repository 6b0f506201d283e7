"""`kinetic jobs report`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from kinetic_cli.app import App
from kinetic_cli.commands.jobs.top import rows
from kinetic_cli.options import NewFilePath, job_id_argument, json_option, target_options
from kinetic_cli.output import seconds_text

if TYPE_CHECKING:
    from kinetic.jobs.report import Report

_BAR: Final = 30
"""Characters of the longest bar."""


@click.command("report")
@job_id_argument
@click.option(
    "--html", "page", type=NewFilePath(), metavar="FILE", help="Write a page of HTML instead."
)
@target_options(hidden=True)
@json_option
@click.pass_obj
def command(app: App, job_id: str, page: Path | None, as_json: bool) -> None:
    """Print one page about a job that can be shown to others, from its store alone.

    Values of captured variables, tokens and passwords of known forms, e-mail addresses and home folders are
    removed. What the function prints otherwise is not known to be secret: read the page before you publish it.
    """
    report = app.report(job_id)
    if page is not None:
        from kinetic_cli.commands.dashboard.pages import report_page
        from kinetic_payload.files.atomic import NewFile

        with NewFile(page) as file:
            file.begin().write(report_page(report).encode())
            file.finish()
        app.output.note(f"Wrote {page}")
    elif as_json:
        keys = ("host", "attempt", "stream", "text")
        log = [{key: getattr(line, key) for key in keys} for line in report.log]
        app.output.json({**asdict(report), "log": log})
    else:
        for line in _text(report):
            app.output.line(line)


def _text(report: Report) -> Iterator[str]:
    """Iterate over the lines of the page as text, which Markdown shows as code where it is indented."""
    yield f"{report.job_id}: {report.status}"
    if report.message:
        yield report.message
    yield from ("", *(f"    {name:<12} {text}" for name, text in report.facts.items()))
    if report.timeline:
        yield from ("", "Timeline:")
        longest = max(span.seconds for span in report.timeline) or 1.0
        for span in report.timeline:
            bar = "█" * round(_BAR * span.seconds / longest)
            took = seconds_text(span.seconds, so_far=span.open)
            where = f"{span.attempt}  {span.name:<12} {took:>8}"
            yield f"    {where}  {bar}".rstrip()
            yield from (f"       {reason}" for reason in span.reasons)
    if report.attempts:
        yield from ("", "Attempts:")
    for end in report.attempts:
        took = f"{seconds_text(end.seconds)}, {end.ended} in {end.phase}, exit code {end.exit_code}"
        yield f"    {end.attempt}, host {end.host}: {took}. {end.message}".rstrip()
    if report.failure:
        yield from ("", f"First failure: {report.failure}")
        yield from (f"    {line}" for line in report.stack)
    if report.log:
        yield from ("", "Last lines of the log:", *(f"    {line.shown}" for line in report.log))
    if report.usage:
        yield from ("", "Utilisation, its most and its limit:")
    for host, usage in report.usage.items():
        for _, what, over_time, _, most, limit in rows(host, usage):
            yield f"    host {host}  {what:<14} {over_time}  {most} of {limit or '?'}"
    if report.notes:
        yield from ("", *(f"Note: {note}" for note in report.notes))
