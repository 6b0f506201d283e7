"""`kinetic jobs result`."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from kinetic_cli.app import App
from kinetic_cli.exit_code import INTERRUPTED
from kinetic_cli.options import (
    NewFilePath,
    deletion_options,
    job_id_argument,
    json_option,
    target_options,
)
from kinetic_cli.output import Output, error_document
from kinetic_cli.values import (
    class_of,
    is_encodable,
    json_of,
    text_of,
    value_document,
)

if TYPE_CHECKING:
    from kinetic.errors import ResultUnreadableError
    from kinetic.job_status import JobStatus
    from kinetic.jobs.handle import JobHandle
    from kinetic_payload.files.atomic import NewFile


@click.command("result")
@job_id_argument
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Stop waiting after this time; the job keeps running.  [default: no limit]",
)
@click.option(
    "--output",
    "-o",
    type=NewFilePath(),
    metavar="FILE",
    help="Write the value to this new file: as JSON if it can hold the whole value, else as a pickle.",
)
@click.option(
    "--cleanup/--no-cleanup",
    default=None,
    help="Remove resource and artifacts once the value is written.  [default: yes if the whole value was "
    "written, except for debug jobs and members of a batch]",
)
@deletion_options
@target_options(hidden=True)
@json_option
@click.pass_obj
def command(
    app: App,
    job_id: str,
    timeout: float | None,
    output: Path | None,
    cleanup: bool | None,
    cleanup_timeout: float,
    cleanup_poll_interval: float,
    as_json: bool,
) -> None:
    """Wait for a job and print its value, or write it to a file.

    The job is kept if the output does not hold the whole value. An exception of its function is printed
    with its remote traceback, and the exit code is 1.
    """
    from kinetic_payload.files.atomic import NewFile

    job = app.attach(job_id)
    job_id = job.job_id
    with nullcontext() if output is None else NewFile(output) as file:
        value, unread = _fetch(app, job, timeout, file, as_json=as_json)
        with _note_if_kept(app.output, job_id):
            if file is None:
                lacks = _print(app.output, job_id, value, as_json=as_json)
            else:
                lacks = _save(app.output, job_id, value, unread, file, as_json=as_json)
            app.output.flush()
    again = f"To remove it: kinetic jobs cleanup {job_id}"
    if cleanup or (cleanup is None and not (lacks or job.debug or job.group_id)):
        try:
            job.cleanup(
                cleanup_timeout=cleanup_timeout, cleanup_poll_interval=cleanup_poll_interval
            )
        except KeyboardInterrupt:
            app.output.note(f"Stopped removing {job_id}; its value was written. {again}")
            raise click.exceptions.Exit(INTERRUPTED) from None
        except Exception as error:  # noqa: BLE001 - whatever it is, the value is written
            app.output.warn(
                f"Warning: The value was written, but {job_id} could not be removed: {error}"
            )
            app.output.warn(again)
        else:
            app.output.note(f"Removed {job_id}.")
    else:
        why = f": {lacks}" if lacks and cleanup is None else ""
        app.output.note(f"{job_id} is kept{why}. {again}")


def _fetch(
    app: App, job: JobHandle, timeout: float | None, file: NewFile | None, *, as_json: bool
) -> tuple[Any, ResultUnreadableError | None]:
    """Wait for the job's value and return it; write its pickle to *file*, if there is one.

    If the value was written but cannot be unpickled, the value is None and the error is returned.
    """
    from kinetic.errors import ResultUnreadableError
    from kinetic.jobs.handle import result_keeping

    def print_status(status: JobStatus) -> None:
        if not status.terminal:
            app.output.note(f"{job.job_id} is {status.value}.")

    def keep(file: NewFile, pickle: IO[bytes]) -> None:
        with _note_if_kept(app.output, job.job_id):
            shutil.copyfileobj(pickle, file.begin(), 1 << 20)

    wait = (
        partial(result_keeping, job, partial(keep, file))
        if file
        else partial(job.result, cleanup=False)
    )
    try:
        return wait(timeout=timeout, on_status_change=print_status), None
    except KeyboardInterrupt:
        app.output.note(
            f"Stopped waiting; the job is left alone. Come back with: kinetic jobs result {job.job_id}"
        )
        raise click.exceptions.Exit(INTERRUPTED) from None
    except Exception as error:
        if isinstance(error, ResultUnreadableError) and file is not None:
            return None, error
        if as_json:
            app.output.json(_document(job.job_id, succeeded=False, error=error_document(error)))
        raise


@contextmanager
def _note_if_kept(output: Output, job_id: str) -> Iterator[None]:
    """If the block fails, print that the job is kept."""
    try:
        yield
    except BaseException:
        with suppress(OSError):  # The reader of stderr may be gone as well.
            output.warn(f"{job_id} is kept: its value was not written as a whole.")
        raise


def _print(output: Output, job_id: str, value: Any, *, as_json: bool) -> str:
    """Print the value, on its own or in a document; return what that lacks, if it is not the whole value."""
    if as_json:
        output.json(_document(job_id, **value_document(value)))
        whole = json_of(value) is not None
    else:
        if type(value) is str:
            # A terminal executes control characters instead of showing them.
            shown = value.replace("\n", "").replace("\t", "").isprintable()
            text, whole = value, shown or not output.stdout.isatty()
        elif isinstance(value, str):
            text, whole = str.__str__(value), False
        else:
            text, whole = text_of(value)
        encoding = getattr(output.stdout, "encoding", None) or "utf-8"
        if not is_encodable(text, encoding):
            text, whole = text.encode(encoding, "backslashreplace").decode(encoding), False
        output.line(text)
    if whole:
        return ""
    return (
        "the printed text does not hold the whole value. "
        f"To write the whole value: kinetic jobs result {job_id} --output FILE"
    )


def _save(
    output: Output,
    job_id: str,
    value: Any,
    unread: ResultUnreadableError | None,
    file: NewFile,
    *,
    as_json: bool,
) -> str:
    """Write the file: the value as JSON if it can hold the whole value, else as a pickle.

    Return why the value cannot be restored from it, if it was *unread*.
    """
    text = json_of(value) if unread is None else None
    if text is not None:
        file.begin().write(f"{text}\n".encode())
    file.finish()
    if as_json:
        written = {"path": str(file.path), "format": "pickle" if text is None else "json"}
        kind = class_of(value) if unread is None else None
        output.json(_document(job_id, output=written, type=kind))
    form = "a pickle" if text is None else "JSON"
    output.note(f"Wrote the value of {job_id} as {form} to {file.path}.")
    if unread is None:
        return ""
    output.warn(f"Warning: {unread.message}")
    return "that pickle could not be read here"


def _document(job_id: str, *, succeeded: bool = True, **known: Any) -> dict[str, Any]:
    unknown = dict.fromkeys(("type", "value", "repr", "error", "output"))
    return {"job_id": job_id, "succeeded": succeeded, **unknown, **known}
