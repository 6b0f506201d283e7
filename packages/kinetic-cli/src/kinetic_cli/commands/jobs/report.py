"""`kinetic jobs report`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from kinetic_cli.app import App
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
        from kinetic_payload.files.atomic import NewFile

        with NewFile(page) as file:
            file.begin().write(_html(report).encode())
            file.finish()
        app.output.note(f"Wrote {page}")
    elif as_json:
        app.output.json(asdict(report))
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
            where = f"{span.attempt}  {span.name:<12} {seconds_text(span.seconds):>8}"
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
        yield from ("", "Last lines of the log:", *(f"    {line}" for line in report.log))
    if report.notes:
        yield from ("", *(f"Note: {note}" for note in report.notes))


_STYLE: Final = """
body{font:14px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
td,th{padding:0 1rem 0 0;text-align:left;vertical-align:top}
pre{background:#8881;padding:.7rem;overflow-x:auto}
.bar{background:#47a;height:.9em;min-width:1px}.waiting{background:#aaa}.wide{width:100%}
"""


def _html(report: Report) -> str:
    """Return the page as one file, which loads nothing and runs nothing."""
    head = (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
    )
    longest = max((span.seconds for span in report.timeline), default=0) or 1.0
    parts = [
        f"{head}<title>{escape(report.job_id)}</title><style>{_STYLE}</style>",
        f"<h1>{escape(report.job_id)}: {escape(report.status)}</h1><p>{escape(report.message)}</p>",
        _table((), report.facts.items()),
        "<h2>Timeline</h2><table class=wide>",
        *(
            f"<tr><td>{span.attempt}<td>{escape(span.name)}<td>{seconds_text(span.seconds)}"
            f'<td class=wide><div class="bar {escape(span.name)}" '
            f'style="width:{100 * span.seconds / longest:.1f}%"></div>'
            + "<br>".join(map(escape, span.reasons))
            for span in report.timeline
        ),
        "</table>",
        "<h2>Attempts</h2>",
        _table(
            ("attempt", "host", "took", "ended", "phase", "exit", "message"),
            (
                (
                    e.attempt,
                    e.host,
                    seconds_text(e.seconds),
                    e.ended,
                    e.phase,
                    e.exit_code,
                    e.message,
                )
                for e in report.attempts
            ),
        ),
    ]
    if report.failure:
        stack = escape("\n".join(report.stack))
        parts.append(f"<h2>First failure</h2><p>{escape(report.failure)}</p><pre>{stack}</pre>")
    log = escape("\n".join(report.log))
    parts.append(f"<h2>Last lines of the log</h2><pre>{log}</pre>")
    parts += [f"<p>{escape(note)}</p>" for note in report.notes]
    return "\n".join(parts) + "\n</html>\n"


def _table(heads: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> str:
    head = "".join(f"<th>{escape(each)}" for each in heads)
    cells = ("".join(f"<td>{escape(str(cell))}" for cell in row) for row in rows)
    return "<table>" + "".join(f"<tr>{row}" for row in (head, *cells) if row) + "</table>"
