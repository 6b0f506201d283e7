"""`kinetic batches status`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from kinetic_cli.app import App
from kinetic_cli.commands.batches.list import facts_of
from kinetic_cli.options import json_option, target_options
from kinetic_cli.output import age_text

if TYPE_CHECKING:
    from kinetic.batches.handle import BatchHandle
    from kinetic.batches.states import Look
    from kinetic_payload.records.outcome import Outcome

_MOST_ROWS: Final = 10
_SLOWEST: Final = 5


@click.command("status")
@click.argument("group_id")
@target_options(hidden=True)
@json_option
@click.pass_obj
def command(app: App, group_id: str, as_json: bool) -> None:
    """Show how far a batch is, its failures and its slowest inputs."""
    from kinetic.batches.progress import pace, summary, text_grid

    batch = app.attach_batch(group_id)
    look = batch._states.look()
    facts = facts_of(app, batch, look)
    stopped = batch._states.stopped
    why = stopped.message if stopped else look.reason
    reports = [outcome.report for _, outcome in look.ended if outcome.report]
    # The first inputs may have waited for long.
    began = min((report.started_at for report in reports if report.started_at), default=0)
    rate = len(look.ended) / max(app.clock() - began, 1) if began and not look.over else 0.0
    failures = _failures(batch, look)
    seconds = {report.job_id: report.finished_at - report.started_at for report in reports}
    slowest = sorted(seconds, key=seconds.__getitem__, reverse=True)[:_SLOWEST]
    if as_json:
        more = {
            "message": why,
            "rate": rate or None,
            "seconds_left": len(look.left) / rate if rate else None,
            "failures": [
                {"type": kind, "message": message, "inputs": inputs}
                for (kind, message), inputs in failures
            ],
            "slowest": [{"job_id": job_id, "seconds": seconds[job_id]} for job_id in slowest],
            "statuses": {index: status.value for index, status in look.statuses.items()},
        }
        app.output.json({**facts, **more})
        return
    tags = ", ".join(f"{key}={value}" for key, value in batch.tags.items())
    app.output.facts(
        [
            ("status", facts["status"]),
            ("why", why or None),
            ("batch", group_id),
            ("inputs", summary(batch._manifest, look) + pace(rate, len(look.left))),
            ("tags", tags or None),
            *((key, facts[key]) for key in ("function", "accelerator", "backend")),
            ("created", facts["created_at"]),
            ("age", age_text(facts["age_seconds"])),
        ]
    )
    app.output.line("")
    for line in text_grid(batch._manifest, look):
        app.output.line(line)
    if failures:
        app.output.line("")
        app.output.table(
            ["inputs", "first", "type", "message"],
            ((len(found), found[0], *failure) for failure, found in failures[:_MOST_ROWS]),
        )
        if len(failures) > _MOST_ROWS:
            app.output.note(f"{len(failures) - _MOST_ROWS} more kinds of failures: use --json.")
    if slowest:
        app.output.line("")
        app.output.table(["seconds", "slowest"], ((f"{seconds[one]:.1f}", one) for one in slowest))


def _failures(batch: BatchHandle, look: Look) -> list[tuple[tuple[str, str], list[int]]]:
    """Return the inputs that failed, by type and message of their failures; the most frequent ones first."""
    from kinetic.job_status import JobStatus

    found: dict[tuple[str, str], list[int]] = {}
    ended = dict(look.ended)
    for index in range(len(batch)):
        if (text := batch._manifest.failed.get(str(index))) is not None:
            failure = ("not submitted", text)
        elif look.statuses[index] is not JobStatus.FAILED:
            continue
        elif index in ended:
            failure = _failure_of(ended[index])
        else:
            error = batch._states.why_not(index)
            failure = (type(error).__name__, error.message.replace(f"Input {index} ", "It ", 1))
        found.setdefault(failure, []).append(index)
    return sorted(found.items(), key=lambda item: len(item[1]), reverse=True)


def _failure_of(outcome: Outcome) -> tuple[str, str]:
    report = outcome.report
    if report is not None and report.error is not None:
        return report.error.type, report.error.message
    return report.reason if report is not None else outcome.status, outcome.message
