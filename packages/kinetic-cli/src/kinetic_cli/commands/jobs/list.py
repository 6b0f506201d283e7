"""`kinetic jobs list`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import click

from kinetic_cli.app import App
from kinetic_cli.commands.batches import look_at
from kinetic_cli.commands.jobs.status import place_of
from kinetic_cli.options import (
    Since,
    json_option,
    place_options,
    place_settings,
    target_options,
)
from kinetic_cli.output import age_of, age_text

if TYPE_CHECKING:
    from kinetic.batches.handle import BatchHandle
    from kinetic.errors import KineticError
    from kinetic.job_status import JobStatus
    from kinetic.jobs.handle import JobHandle
    from kinetic.provisioning.costs import Cost
    from kinetic.settings.settings import Settings
    from kinetic_payload.records.job import JobRecord


_UNVERIFIED: Final = "UNVERIFIED"
"""The status of a job in a bucket whose record or outcome is not signed with the user's key."""
_STATES: Final = (
    "PENDING",
    "RUNNING",
    "SUCCEEDED",
    "FAILED",
    "CANCELLED",
    "NOT_FOUND",
    _UNVERIFIED,
)


@click.command("list")
@place_options
@click.option(
    "--cost", is_flag=True, help="Show the hours of accelerators that they used, and the cost."
)
@click.option(
    "--status",
    "states",
    multiple=True,
    type=click.Choice(_STATES, case_sensitive=False),
    help="Only jobs in this state, or in one of several.",
)
@click.option(
    "--since",
    type=Since(),
    metavar="TIME",
    help="Only jobs that were submitted since then: 2h, 3d, 2026-11-20.",
)
@click.option("--function", metavar="NAME", help="Only the jobs of this function.")
@click.option(
    "--limit", type=click.IntRange(min=1), metavar="N", help="At most the newest N of them."
)
@click.option("--all", "every", is_flag=True, help="Jobs that were cleaned up, too.")
@target_options(hidden=True, without="cluster")
@json_option
@click.pass_obj
def command(
    app: App, /, local: bool, cluster: str | None, cost: bool, as_json: bool, **chosen: Any
) -> None:
    """List jobs with status, age and duration, newest first. A batch is one line."""
    jobs = listed_jobs(app, place_settings(app, local, cluster), cost=cost, **chosen)
    if as_json:
        app.output.json([public(job) for job in jobs])
    elif not jobs:
        app.output.note("No jobs.")
    elif cost:
        print_costs(app, jobs)
    else:
        app.output.table(
            ["job id", "status", "age", "duration", "function", "accelerator", "backend"],
            (
                (
                    job["job_id"],
                    state_of(job),
                    age_text(job["age_seconds"]),
                    age_text(job["duration_seconds"]),
                    job["function"] + (f" × {job['inputs']:,}" if job["inputs"] else ""),
                    job["accelerator"],
                    job["backend"],
                )
                for job in jobs
            ),
            # Its id has the accelerator and the function.
            narrow=("backend", "accelerator", "function", "job id", "duration", "age"),
        )


def state_of(job: Mapping[str, Any]) -> str:
    """Return the state of a job in tables, which `--status` takes."""
    return "CANCELLED" if job["cancelled"] else job["status"] or ""


def listed_jobs(
    app: App,
    settings: Settings,
    *,
    cost: bool = False,
    states: Sequence[str] = (),
    since: datetime | None = None,
    function: str | None = None,
    limit: int | None = None,
    every: bool = False,
) -> list[dict[str, Any]]:
    """Return what JSON shows of the jobs that are asked for, newest first."""
    from kinetic.jobs.discover import statuses_of
    from kinetic.names import Selection, slug

    def wanted(job: JobHandle | JobRecord) -> bool:
        age = age_of(job.created_at, app.clock())
        recent = since is None or (age is not None and app.clock() - age >= since.timestamp())
        return recent and (function is None or slug(job.func_name) == slug(function))

    # A state is not part of an id: then all have to be looked at.
    newest = None if states else limit
    selection = Selection(since=since, function=function, newest=newest, cleaned_up=every)
    handles, batches = app.list_all(settings, selection)
    handles = [job for job in handles if wanted(job)]
    batches = [batch for batch in batches if wanted(batch._manifest.job_record)]
    statuses = statuses_of(handles)
    app.ended = {job.job_id: job for job in handles if job._session.final}
    _note_unverified(app, statuses)
    jobs = [_facts(app, *each) for each in zip(handles, statuses, strict=True)]
    jobs += [_facts_of_batch(app, batch) for batch in batches]
    if cost:
        # Those on this machine are left out.
        from kinetic.provisioning.costs import costs_of
        from kinetic.provisioning.prices import known_prices

        records = [job._record for job in handles]
        records += [batch._manifest.job_record for batch in batches]
        pending = [job["status"] == "PENDING" for job in jobs]
        costs = costs_of(list(zip(records, pending, strict=True)), known_prices(app.settings()))
        jobs = [
            {**job, "submitter": record.submitter, **cost.document(), "_cost": cost}
            for job, record, cost in zip(jobs, records, costs, strict=True)
            if cost is not None
        ]
    jobs = [job for job in jobs if not states or state_of(job) in states]
    return sorted(jobs, key=lambda job: job["created_at"], reverse=True)[:limit]


def public(job: dict[str, Any]) -> dict[str, Any]:
    """Return what JSON shows of a job."""
    return {key: value for key, value in job.items() if not key.startswith("_")}


def ended_jobs(app: App, older_than: timedelta | None) -> list[str]:
    """Return the ids of the jobs that have an outcome of their own, written that long ago, oldest first."""
    from kinetic.jobs.discover import statuses_of

    handles, _ = app.list_all(app.settings())
    _note_unverified(app, statuses_of(handles))
    now, least = app.clock(), older_than.total_seconds() if older_than else -math.inf
    # An early outcome does not say when it was written.
    ended = [
        job
        for job in handles
        if (final := job._session.final) and now - (final.written_at or now) >= least
    ]
    return [job.job_id for job in sorted(ended, key=lambda job: job.created_at)]


def _facts(app: App, job: JobHandle, status: JobStatus | KineticError) -> dict[str, Any]:
    final = job._session.final
    duration = age_of(job.created_at, final.written_at) if final and final.written_at else None
    return {
        "job_id": job.job_id,
        "status": _text(app, job, status),
        "cancelled": final is not None and final.status == "cancelled",
        "cleaned_up": job._session.cleaned_up,
        "duration_seconds": duration,
        "group_id": job.group_id,
        "inputs": None,
        **_facts_of_record(app, job),
    }


def _facts_of_batch(app: App, batch: BatchHandle) -> dict[str, Any]:
    look = look_at(app, batch)
    stop = batch._states.stopped if look and look.over and look.left else None
    return {
        "job_id": batch.group_id,
        "status": look and look.status_of(batch._manifest).value,
        "cancelled": stop is not None and stop.status == "cancelled",
        "cleaned_up": False,
        "duration_seconds": None,
        "group_id": batch.group_id,
        "inputs": len(batch),
        **_facts_of_record(app, batch._manifest.job_record),
    }


def _facts_of_record(app: App, job: JobHandle | JobRecord) -> dict[str, Any]:
    return {
        "age_seconds": age_of(job.created_at, app.clock()),
        "created_at": job.created_at,
        "function": job.func_name,
        "accelerator": job.accelerator,
        "backend": job.backend,
        **place_of(job),
    }


def print_costs(app: App, jobs: list[dict[str, Any]]) -> None:
    """Print what each job costs, and then each submitter."""
    from kinetic.provisioning.costs import total

    heads = ["attempts", "accelerator hours", "cost"]
    app.output.table(
        ["job id", "status", "accelerator", *heads],
        ((job["job_id"], job["status"], job["accelerator"], *_cells(job["_cost"])) for job in jobs),
        narrow=("accelerator", "job id"),
    )
    app.output.line("")
    people = sorted({job["submitter"] or "" for job in jobs})
    app.output.table(
        ["submitter", "jobs", *heads],
        (
            (who or "not known", len(theirs), *_cells(total(theirs)))
            for who in people
            for theirs in [[job["_cost"] for job in jobs if (job["submitter"] or "") == who]]
        ),
    )


def _cells(cost: Cost) -> tuple[object, str, str]:
    hours = "unknown" if cost.hours is None else f"{'≥' * (not cost.complete)}{cost.hours:,.2f}"
    dollars = (
        "unknown" if cost.dollars is None else f"{'≥' * (not cost.priced)}${cost.dollars:,.2f}"
    )
    return cost.attempts, hours, dollars


def _note_unverified(app: App, statuses: list[JobStatus | KineticError]) -> None:
    from kinetic.errors import SignatureError

    refused = [status for status in statuses if isinstance(status, SignatureError)]
    if refused:
        jobs = "1 job is" if len(refused) == 1 else f"{len(refused)} jobs are"
        app.output.warn(f"Warning: {jobs} {_UNVERIFIED}. {refused[0].message}")
        if refused[0].hint:
            app.output.warn(refused[0].hint)


def _text(app: App, job: JobHandle, status: JobStatus | KineticError) -> str | None:
    from kinetic.errors import SignatureError
    from kinetic.job_status import JobStatus

    if isinstance(status, JobStatus):
        return status.value
    if isinstance(status, SignatureError):
        return _UNVERIFIED
    # An error of one job must not hide the other jobs.
    app.output.warn(f"Warning: the status of {job.job_id} is unknown: {status.message}")
    return None
