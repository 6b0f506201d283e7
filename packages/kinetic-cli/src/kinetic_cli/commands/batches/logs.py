"""`kinetic batches logs`."""

from __future__ import annotations

import click

from kinetic_cli.app import App
from kinetic_cli.options import Count, json_option, target_options


@click.command("logs")
@click.argument("group_id")
@click.argument("inputs", nargs=-1, type=Count(min=0), metavar="[INPUT]...")
@click.option("--failed", is_flag=True, help="Print the logs of inputs that failed.")
@click.option(
    "-n",
    "--tail",
    type=Count(min=0),
    metavar="LINES",
    help="Begin this many lines before the end of each log.",
)
@target_options(hidden=True)
@json_option
@click.pass_obj
def command(
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
    if wrong := [index for index in inputs if index >= len(batch)]:
        raise InvalidRequestError(
            f"{group_id} has no input {wrong[0]}.", hint=f"Its inputs are 0 to {len(batch) - 1}."
        )
    jobs = batch.failures() if failed else [job for job in batch.jobs if job is not None]
    for job in jobs:
        if inputs and job.group_index not in inputs:
            continue
        for line in job.log_lines(tail=tail):
            if as_json:
                known = {"input": job.group_index, "attempt": line.attempt, "text": line.text}
                app.output.json(known, lines=True)
            else:
                app.output.line(f"[{job.group_index}] {line.shown}")
