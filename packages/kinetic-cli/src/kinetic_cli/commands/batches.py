"""`kinetic batches`: batches that any process on any machine has submitted."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import click

from kinetic_cli.app import App
from kinetic_cli.exit_code import INTERRUPTED
from kinetic_cli.lazy_group import Group
from kinetic_cli.options import ask, json_option, target_options
from kinetic_cli.output import age_of, age_text, error_document
from kinetic_cli.values import text_of, value_document

if TYPE_CHECKING:
    from kinetic.batches.handle import BatchHandle
    from kinetic.batches.states import Look
    from kinetic_payload.records.outcome import Outcome

MOST_FAILURES: Final = 10
_SLOWEST: Final = 5


@click.group("batches", cls=Group)
def command() -> None:
    """List, watch, collect and stop batches: many calls of one function."""


@command.command("list")
@target_options(hidden=True)
@json_option
@click.pass_obj
def list_batches(app: App, as_json: bool) -> None:
    """List batches, newest first."""
    batches = [facts_of(app, batch, look_at(app, batch)) for batch in app.list_batches()]
    if as_json:
        app.output.json(batches)
    elif not batches:
        app.output.note("No batches.")
    else:
        last = ["function", "accelerator", "backend", "name"]
        app.output.table(
            ["batch id", "status", "inputs", "done", "failed", "age", *last],
            (
                (
                    batch["group_id"],
                    batch["status"],
                    batch["inputs"],
                    batch["inputs"] if batch["collected"] else batch["counts"].get("SUCCEEDED", 0),
                    batch["counts"].get("FAILED", 0) + batch["not_submitted"],
                    age_text(batch["age_seconds"]),
                    *(batch[key] for key in last),
                )
                for batch in batches
            ),
            narrow=("name", "backend", "accelerator", "age", "function"),
        )


def look_at(app: App, batch: BatchHandle) -> Look | None:
    """Look at *batch*; None, after a note that says why, if it cannot be seen."""
    from kinetic.errors import KineticError

    try:
        return batch._states.look()
    except KineticError as error:
        # An error of one batch must not hide the others.
        app.output.warn(f"Warning: the status of {batch.group_id} is unknown: {error.message}")
        return None


def facts_of(app: App, batch: BatchHandle, look: Look | None) -> dict[str, Any]:
    """Return what lists and `kinetic batches status` show of a batch; *look* is None if it cannot be seen."""
    manifest = batch._manifest
    return {
        "group_id": batch.group_id,
        "name": batch.name,
        "tags": batch.tags,
        "status": look and look.status_of(manifest).value,
        "inputs": len(batch),
        "collected": look and look.collected,
        "counts": Counter(status.value for status in look.statuses.values()) if look else {},
        "not_submitted": len(manifest.failed),
        "age_seconds": age_of(manifest.created_at, app.clock()),
        "created_at": manifest.created_at,
        "function": manifest.func_name,
        "accelerator": manifest.accelerator,
        "backend": manifest.job_record.backend,
    }


def print_facts(app: App, batch: BatchHandle, line: str, *, as_json: bool) -> None:
    """Print what a command did to *batch*: as a document what lists show of it now, or the *line*."""
    look = batch._states.look()
    if as_json:
        app.output.json(facts_of(app, batch, look))
        return
    counts = Counter(status.value for status in look.statuses.values())
    app.output.line(line.format(", ".join(f"{n} {status}" for status, n in counts.items())))


@command.command("status")
@click.argument("group_id")
@target_options(hidden=True)
@json_option
@click.pass_obj
def status(app: App, group_id: str, as_json: bool) -> None:
    """Show how far a batch is, its failures and its slowest inputs."""
    from kinetic.batches.progress import pace, summary, text_grid

    batch = app.attach_batch(group_id)
    facts, look = details_of(app, batch)
    if as_json:
        app.output.json(facts)
        return
    tags = ", ".join(f"{key}={value}" for key, value in batch.tags.items())
    app.output.facts(
        [
            ("status", facts["status"]),
            ("why", facts["message"] or None),
            ("batch", batch.group_id),
            ("inputs", summary(batch._manifest, look) + pace(facts["rate"] or 0, len(look.left))),
            ("tags", tags or None),
            *((key, facts[key]) for key in ("function", "accelerator", "backend")),
            ("created", facts["created_at"]),
            ("age", age_text(facts["age_seconds"])),
        ]
    )
    app.output.line("")
    for line in text_grid(batch._manifest, look):
        app.output.line(line)
    if failures := facts["failures"]:
        app.output.line("")
        app.output.table(
            ["inputs", "first", "type", "message"],
            (
                (len(each["inputs"]), each["inputs"][0], each["type"], each["message"])
                for each in failures[:MOST_FAILURES]
            ),
        )
        if len(failures) > MOST_FAILURES:
            app.output.note(f"{len(failures) - MOST_FAILURES} more kinds of failures: use --json.")
    if slowest := facts["slowest"]:
        app.output.line("")
        app.output.table(
            ["seconds", "slowest"], ((f"{one['seconds']:.1f}", one["job_id"]) for one in slowest)
        )


def details_of(app: App, batch: BatchHandle) -> tuple[dict[str, Any], Look]:
    """Return what `kinetic batches status --json` prints of a batch, and the look that shows it."""
    look = batch._states.look()
    stopped = batch._states.stopped
    reports = [outcome.report for _, outcome in look.ended if outcome.report]
    # The first inputs may have waited for long.
    began = min((report.started_at for report in reports if report.started_at), default=0)
    rate = len(look.ended) / max(app.clock() - began, 1) if began and not look.over else 0.0
    seconds = {report.job_id: report.finished_at - report.started_at for report in reports}
    slowest = sorted(seconds, key=seconds.__getitem__, reverse=True)[:_SLOWEST]
    return {
        **facts_of(app, batch, look),
        "message": stopped.message if stopped else look.reason,
        "rate": rate or None,
        "seconds_left": len(look.left) / rate if rate else None,
        "failures": [
            {"type": kind, "message": message, "inputs": inputs}
            for (kind, message), inputs in _failures(batch, look)
        ],
        "slowest": [{"job_id": job_id, "seconds": seconds[job_id]} for job_id in slowest],
        "statuses": {index: status.value for index, status in look.statuses.items()},
    }, look


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


@command.command("results")
@click.argument("group_id")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Stop waiting after this time; the batch goes on.  [default: no limit]",
)
@click.option(
    "--cleanup",
    is_flag=True,
    help="Remove resource and artifacts once all values are printed, if no input failed.",
)
@target_options(hidden=True)
@json_option
@click.pass_obj
def results(app: App, group_id: str, timeout: float | None, cleanup: bool, as_json: bool) -> None:
    """Wait for a batch and print its values.

    They are printed in the order of the inputs, as they arrive. Each line has the index of an input and the repr of
    its value; with --json, each is a document. Failures follow after all values, and the exit code is then 1.
    """
    from kinetic.errors import BatchError

    batch = app.attach_batch(group_id)
    group_id = batch.group_id

    def document(index: int, **known: object) -> None:
        unknown = dict.fromkeys(("type", "value", "repr", "error"))
        app.output.json({"input": index, **unknown, **known}, lines=True)

    try:
        for index, value in batch.iter_results(timeout=timeout):
            if as_json:
                document(index, **value_document(value))
            else:
                app.output.line(f"{index}  {text_of(value)[0]}", flush=True)
        app.output.flush()
    except KeyboardInterrupt:
        again = f"kinetic batches results {group_id}"
        app.output.note(f"Stopped waiting; the batch is left alone. Come back with: {again}")
        raise click.exceptions.Exit(INTERRUPTED) from None
    except BatchError as failed:
        for index, error in failed.exceptions.items() if as_json else ():
            document(index, error=error_document(error))
        failed.hint = f"Show all failures with: kinetic batches status {group_id}"
        raise
    if cleanup:
        batch.cleanup()
        app.output.note(f"Removed {group_id}.")
    else:
        app.output.note(f"{group_id} is kept. To remove it: kinetic batches cleanup {group_id}")


@command.command("logs")
@click.argument("group_id")
@click.argument("inputs", nargs=-1, type=click.IntRange(min=0), metavar="[INPUT]...")
@click.option("--failed", is_flag=True, help="Print the logs of inputs that failed.")
@click.option(
    "-n",
    "--tail",
    type=click.IntRange(min=0),
    metavar="LINES",
    help="Begin this many lines before the end of each log.",
)
@target_options(hidden=True)
@json_option
@click.pass_obj
def logs(
    app: App,
    group_id: str,
    inputs: tuple[int, ...],
    failed: bool,
    tail: int | None,
    as_json: bool,
) -> None:
    """Print the logs of a batch, or of some inputs.

    INPUT is the index of an input. Each line begins with the index of its input. To follow the log of one: kinetic jobs logs -f, with the id of its job.
    """
    from kinetic.errors import InvalidRequestError

    batch = app.attach_batch(group_id)
    group_id = batch.group_id
    if wrong := [index for index in inputs if index >= len(batch)]:
        raise InvalidRequestError(
            f"{group_id} has no input {wrong[0]}.", hint=f"Its inputs are 0 to {len(batch) - 1}."
        )
    jobs = batch.failures() if failed else [job for job in batch.jobs if job is not None]
    printer = app.output.log_printer()
    for job in jobs:
        if inputs and job.group_index not in inputs:
            continue
        for line in job.log_lines(tail=tail):
            if as_json:
                known = {"input": job.group_index, "attempt": line.attempt, "stream": line.stream}
                app.output.json({**known, "text": line.text}, lines=True)
            else:
                printer.line(line, f"[{job.group_index}] ")
        printer.close()  # The next job has hosts of its own.


@command.command("cancel")
@click.argument("group_id")
@target_options(hidden=True)
@json_option
@click.pass_obj
def cancel(app: App, group_id: str, as_json: bool) -> None:
    """Stop a batch: stop the inputs that run, and start no other. Values that are there stay."""
    batch = app.attach_batch(group_id)
    group_id = batch.group_id
    look = batch._states.look()
    # Of a batch that lost its workers, a wait would start the rest again.
    ended = look.over and (not look.left or look.collected or batch._states.find_stop())
    if not ended:
        batch.cancel()
    line = f"{group_id} had ended already: {{}}." if ended else f"Cancelled {group_id}: {{}}."
    print_facts(app, batch, line, as_json=as_json)


yes_option = click.option(
    "--yes", is_flag=True, help="Do not ask before more than 1,000 inputs start on accelerators."
)


@command.command("retry")
@click.argument("group_id")
@yes_option
@target_options(hidden=True)
@json_option
@click.pass_obj
def retry(app: App, group_id: str, yes: bool, as_json: bool) -> None:
    """Run the inputs of a batch again that failed or were never started."""
    batch = app.attach_batch(group_id)
    group_id = batch.group_id
    batch.retry_failed(assume_yes=yes)
    print_facts(app, batch, f"{group_id}: {{}}.", as_json=as_json)


@command.command("resume")
@click.argument("group_id")
@yes_option
@target_options(hidden=True)
@json_option
@click.pass_obj
def resume(app: App, group_id: str, yes: bool, as_json: bool) -> None:
    """Start the workers of a batch again that were lost, as a wait for its results does."""
    batch = app.attach_batch(group_id)
    group_id = batch.group_id
    batch.resume(assume_yes=yes)
    print_facts(app, batch, f"{group_id}: {{}}.", as_json=as_json)


@command.command("cleanup")
@click.argument("group_id")
@click.option("--yes", is_flag=True, help="Do not ask before a batch that still runs is cancelled.")
@target_options(hidden=True)
@json_option
@click.pass_obj
def clean_up(app: App, group_id: str, yes: bool, as_json: bool) -> None:
    """Remove a batch with all of its values; logs and outputs stay. If it still runs, it is cancelled."""

    batch = app.attach_batch(group_id)
    group_id = batch.group_id
    look = batch._states.look()
    if not (look.over or yes):
        running = f"{group_id} still runs: {len(look.left)} of {len(batch)} inputs have not ended."
        ask(
            f"{running} Cancel it, and remove it?",
            otherwise=running,
            hint=f"Cancel it and remove it with: kinetic batches cleanup {group_id} --yes",
        )
    batch.cleanup()
    if as_json:
        app.output.json({"group_id": group_id, "removed": True})
    else:
        app.output.line(f"Cleaned up {group_id}.")
