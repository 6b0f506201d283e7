"""`kinetic jobs top`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import click

from kinetic_cli.app import App
from kinetic_cli.options import job_id_argument, json_option, target_options

if TYPE_CHECKING:
    from kinetic_payload.records.usage import Usage

_BLOCKS: Final = "▁▂▃▄▅▆▇█"
_COLUMNS: Final = 40


@click.command("top")
@job_id_argument
@click.option(
    "--attempt",
    type=click.IntRange(min=1),
    metavar="N",
    help="Show this attempt instead of the latest.",
)
@target_options(hidden=True)
@json_option
@click.pass_obj
def command(app: App, job_id: str, attempt: int | None, as_json: bool) -> None:
    """Show what a job used over time: processors, memory, GPUs or TPU chips of each host.

    The samples are kept with the log, also after the end of the job. A function that ran for less than ten
    seconds has none.
    """
    job = app.attach(job_id)
    job_id, usage = job.job_id, job.usage(attempt)
    if as_json:
        app.output.json({"job_id": job_id, "hosts": {str(n): asdict(u) for n, u in usage.items()}})
        return
    if not usage:
        app.output.note(f"{job_id} has no samples: they begin ten seconds after the function.")
        return
    app.output.table(
        ["host", "what", "over time", "last", "most", "of"],
        (row for host, each in usage.items() for row in rows(host, each)),
    )


def rows(host: int, usage: Usage) -> Iterator[tuple[object, ...]]:
    """Iterate over a row for each thing that a host uses."""
    from kinetic_payload.progress import size_text
    from kinetic_payload.records.usage import Chip

    def row(
        what: str, values: Sequence[float], most: float | None, text: Callable[[float], str]
    ) -> tuple[object, ...]:
        top = most or max(values)
        return (
            host,
            what,
            bars(values, top),
            text(values[-1]),
            text(max(values)),
            most and text(most),
        )

    samples = usage.samples
    yield row("processors", [s.cpu for s in samples], usage.cpus, "{:.1f}".format)
    yield row("memory", [s.memory for s in samples], usage.memory_limit, size_text)
    idle = Chip(busy=0.0, memory=0, memory_total=0)  # A TPU has no values before its first use.
    for number in range(max(len(s.chips) for s in samples)):
        chips = [s.chips[number] if number < len(s.chips) else idle for s in samples]
        yield row(f"chip {number}", [c.busy for c in chips], 1.0, "{:.0%}".format)
        total = max(c.memory_total for c in chips)
        yield row(f"chip {number} memory", [c.memory for c in chips], total, size_text)


def bars(values: Sequence[float], top: float) -> str:
    """Return block characters for *values*, the most of each part; *top* fills a block."""
    parts = min(len(values), _COLUMNS)
    edges = [len(values) * part // parts for part in range(parts + 1)]
    shares = (max(values[a:b]) / (top or 1) for a, b in pairwise(edges))
    return "".join(_BLOCKS[min(7, int(share * 8))] for share in shares)
