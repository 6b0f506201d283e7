"""`kinetic jobs result`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import click

from kinetic_cli.app import App
from kinetic_cli.options import (
    Seconds,
    deletion_options,
    job_id_argument,
    json_option,
    target_options,
)
from kinetic_cli.output import headline_of, notes_of

if TYPE_CHECKING:
    from kinetic.job_status import JobStatus

_REPR_LIMIT: Final = 1_000_000


@click.command("result")
@job_id_argument
@click.option(
    "--timeout",
    type=Seconds(min=0),
    metavar="SECONDS",
    help="Give up waiting after so long; the job runs on.  [default: wait for ever]",
)
@click.option(
    "--cleanup/--no-cleanup",
    default=None,
    help="Remove resource and artifacts once the value is here.  [default: yes, except debug jobs]",
)
@deletion_options
@target_options(hidden=True)
@json_option
@click.pass_obj
def command(
    app: App,
    job_id: str,
    timeout: float | None,
    cleanup: bool | None,
    cleanup_timeout: float,
    cleanup_poll_interval: float,
    as_json: bool,
) -> None:
    """Wait for a job and print its value.

    An exception of its function is printed with its remote traceback, and exit code 1.
    """
    job = app.attach(job_id)

    def tell(status: JobStatus) -> None:
        if not status.terminal:
            app.output.note(f"{job_id} is {status.value}.")

    try:
        value = job.result(
            timeout=timeout,
            cleanup=cleanup,
            cleanup_timeout=cleanup_timeout,
            cleanup_poll_interval=cleanup_poll_interval,
            on_status_change=tell,
        )
    except KeyboardInterrupt:
        app.output.note(
            f"Stopped waiting; the job is left alone. Come back with: kinetic jobs result {job_id}"
        )
        raise click.exceptions.Exit(130) from None
    except Exception as error:
        if as_json:
            app.output.json(_failed(job_id, error))
        raise
    if as_json:
        app.output.json(_succeeded(job_id, value))
    else:
        app.output.line(value if isinstance(value, str) else _shown(value))


def _succeeded(job_id: str, value: Any) -> dict[str, Any]:
    document = {
        "job_id": job_id,
        "succeeded": True,
        "type": f"{type(value).__module__}.{type(value).__qualname__}",
        "value": None,
        "repr": _shown(value),
        "error": None,
    }
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return document
    return {**document, "value": value}


def _failed(job_id: str, error: Exception) -> dict[str, Any]:
    kind = type(error)
    return {
        "job_id": job_id,
        "succeeded": False,
        "type": None,
        "value": None,
        "repr": None,
        "error": {
            "type": f"{kind.__module__}.{kind.__qualname__}",
            "message": headline_of(error).partition(": ")[2],
            "notes": notes_of(error),
        },
    }


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - the user's own __repr__ may do anything
        return f"<{type(value).__qualname__} whose repr fails>"
    return text if len(text) <= _REPR_LIMIT else text[:_REPR_LIMIT] + "…"
