"""`kinetic jobs status`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from kinetic_cli.app import App
from kinetic_cli.options import job_id_argument, json_option, target_options
from kinetic_cli.output import age_of, age_text

if TYPE_CHECKING:
    from kinetic_payload.records.host_outcome import HostOutcome


@click.command("status")
@job_id_argument
@target_options(hidden=True)
@json_option
@click.pass_obj
def command(app: App, job_id: str, as_json: bool) -> None:
    """Show the status of a job, the reason, and what each host reported."""
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
            ("project", job.project or None),
            ("cluster", job.cluster_name or None),
            ("created", job.created_at),
            ("age", age_text(age)),
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
