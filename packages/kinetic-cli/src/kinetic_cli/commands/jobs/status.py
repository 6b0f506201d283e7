"""`kinetic jobs status`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import click

from kinetic_cli.app import App
from kinetic_cli.options import job_id_argument, json_option, target_options
from kinetic_cli.output import age_of, age_text, seconds_text

if TYPE_CHECKING:
    from kinetic.jobs.handle import JobHandle
    from kinetic.jobs.outcome import JobOutcome
    from kinetic_payload.records.host_outcome import HostOutcome
    from kinetic_payload.records.job import JobRecord


@click.command("status")
@job_id_argument
@target_options(hidden=True)
@json_option
@click.pass_obj
def command(app: App, job_id: str, as_json: bool) -> None:
    """Show the status of a job, the reason, and what each host reported."""
    from kinetic.jobs.runner import output_dir_of

    job = app.attach(job_id)
    outcome = job.outcome()
    age = age_of(job.created_at, app.clock())
    if as_json:
        app.output.json(
            {
                "job_id": job.job_id,
                "status": outcome.status.value,
                "message": outcome.message,
                "age_seconds": age,
                "handle": job.to_dict(),
                "hosts": [_host(host) for host in outcome.hosts],
            }
        )
        return
    app.output.facts(
        [
            ("status", outcome.status.value),
            ("why", outcome.message or None),
            ("job", job.job_id),
            ("function", job.display_name or job.func_name),
            ("accelerator", job.accelerator),
            ("backend", job.backend),
            *(place_of(job).items()),
            ("created", job.created_at),
            ("age", age_text(age)),
            *_times(job, outcome, app.clock()),
            ("outputs", output_dir_of(job._record, job.bucket_name)),
        ]
    )
    if outcome.hosts:
        app.output.line("")
        app.output.table(
            ["attempt", "host", "ended", "phase", "exit", "message"],
            (
                (host.attempt, host.host, host.reason, host.phase, host.exit_code, host.message)
                for host in outcome.hosts
            ),
        )


def place_of(job: JobHandle | JobRecord) -> dict[str, str | None]:
    """Return project, cluster, zone and namespace of a job by name; None for each of a job on a machine."""
    from kinetic.backends.registry import entry_of

    names = {"project": job.project, "cluster": job.cluster_name, "zone": job.zone}
    local = entry_of(job.backend).on_this_machine
    known = {**names, "namespace": job.namespace}
    return {name: None if local else text or None for name, text in known.items()}


_LEAST: Final = 0.005
"""Seconds of the shortest phase that is shown."""


def _times(job: JobHandle, outcome: JobOutcome, now: float) -> list[tuple[str, str | None]]:
    """Return how long the job waited and its latest attempt ran, and the phases of that attempt, until *now*."""
    from kinetic.jobs.report import WAITING, timeline_of

    spans = timeline_of(job.created_at, outcome, now=now)
    last = [span for span in spans if span.attempt == spans[-1].attempt]
    waited = sum(span.seconds for span in spans if span.name == WAITING)
    phases = [span for span in last if span.name != WAITING and span.seconds >= _LEAST]
    ran = [host for host in outcome.hosts if spans and host.attempt == spans[-1].attempt]
    seconds = max((host.finished_at - host.started_at for host in ran), default=0.0)
    waits = any(span.open and span.name == WAITING for span in spans)
    return [
        ("waited", seconds_text(waited, so_far=waits) if spans else None),
        ("ran", seconds_text(seconds) if ran else None),
        (
            "phases",
            ", ".join(f"{s.name} {seconds_text(s.seconds, so_far=s.open)}" for s in phases) or None,
        ),
    ]


def _host(host: HostOutcome) -> dict[str, Any]:
    known = asdict(host)
    error = known.pop("error")
    return {
        **{
            key: known[key]
            for key in (
                "attempt",
                "host",
                "succeeded",
                "reason",
                "phase",
                "exit_code",
                "signal",
                "message",
                "started_at",
                "finished_at",
                "phases",
                "warnings",
            )
        },
        "error": error and {key: error[key] for key in ("type", "message", "traceback")},
    }
