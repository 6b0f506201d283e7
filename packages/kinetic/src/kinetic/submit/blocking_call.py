"""Blocking calls: submit, show progress and the log, return the value."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

from kinetic.console import Console, is_terminal
from kinetic.errors import InvalidRequestError, KineticError
from kinetic.job_status import JobStatus
from kinetic.jobs.services import LOOK
from kinetic_payload.layout import JobObjects
from kinetic_payload.progress import duration_text
from kinetic_payload.stores.outages import OutageLimit

if TYPE_CHECKING:
    from kinetic.backends.backend import LogLine
    from kinetic.jobs.handle import JobHandle
    from kinetic.submit.request import JobRequest


def call(
    request: JobRequest,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    submit: Callable[..., JobHandle] | None = None,
    console: Console | None = None,
    ask: Callable[[str], str] | None = None,
) -> Any:
    """Run *function* as the job *request*; return its value or raise its exception.

    Ctrl-C before the job started undoes the submit. After the start it prints how to get back to the
    job, asks on a terminal (with *ask*) whether to cancel it, and is raised again.

    A debug job's log is not printed, but how to attach a debugger to it.

    Raises:
        InvalidRequestError: It is a debug job, and there is no terminal on which somebody could read that.
    """
    if submit is None:
        from kinetic.submit.submit import submit as start_job

        submit = start_job
    if console is None:
        console = Console.of_this_process(request.settings)
        if console.interactive and is_terminal(sys.stdin):
            ask = ask or input
    if request.debug and not (console.interactive or request.settings.no_tty_debug.value):
        raise InvalidRequestError(
            "A blocking call of a function with debug=True waits until you attach a debugger, and stderr, on "
            "which it prints how to attach, is not a terminal.",
            hint="Call run_async(), and then debug_attach() of the handle. Or set KINETIC_NO_TTY_DEBUG=1.",
        )
    began = time.monotonic()
    started: list[JobHandle] = []
    seen: JobStatus | None = None

    def show_status(status: JobStatus) -> None:
        nonlocal seen
        seen = status
        if status in _PHASES:
            console.phase(_PHASES[status])

    with console, ExitStack() as stack:
        try:
            handle = submit(request, function, args, kwargs, console=console, started=started)
            started[:] = [handle]
            console.label = f"{handle.func_name} {handle.job_id[-7:]}"
            # Whoever closes the terminal needs the id to come back.
            console.say(f"submitted {handle.job_id}")
            try:
                value = handle._collect(
                    on_line=_line_printer(handle, console, stack),
                    on_status_change=show_status,
                    on_reason=console.reason,
                    track=console.progress,
                    warn=console.note,
                )
            finally:
                collected = handle._session.collected
                with suppress(OSError):  # A log that cannot be printed must not cost the result.
                    console.print_held(but=collected.traceback if collected else "")
            with suppress(KeyboardInterrupt):  # The job is cleaned up, and its value is here.
                took = duration_text(time.monotonic() - began)
                console.say(f"done in {took}{_outputs_of(handle)}")
            return value
        except KeyboardInterrupt as stop:
            console.done()
            if not started:
                console.note(
                    "The job was not started. Data that was uploaded is not uploaded again."
                )
            elif seen is not None and seen.terminal:
                console.note(
                    f"The job has ended: {started[0].job_id}\n"
                    f"  its result: kinetic jobs result {started[0].job_id}\n"
                    f"  its log:    kinetic jobs logs {started[0].job_id}"
                )
            else:
                _offer_to_cancel(started[0], console, ask)
            # Omit Kinetic's frames and the context, which would push the note off the screen.
            raise stop.with_traceback(None) from None


def _line_printer(
    handle: JobHandle, console: Console, stack: ExitStack
) -> Callable[[LogLine], None]:
    """Return the function that gets the lines of the log: it prints them.

    For a debug job it lets debuggers attach instead, until *stack* is closed.
    """
    if not handle.debug:
        return console.line
    from kinetic.jobs.debugging import AttachedCall

    console.note(f"Its log: kinetic jobs logs --follow {handle.job_id}")
    attached = AttachedCall(handle, console.text)
    stack.callback(attached.close)
    return attached.look_at


def _outputs_of(handle: JobHandle) -> str:
    """Return where the job's outputs are, as the end of a sentence; empty if it wrote none to its own folder."""
    folder = JobObjects(handle.job_id).outputs
    store = handle._services.store.limited(OutageLimit(LOOK))
    with suppress(KineticError):
        for _ in store.list(folder):
            return f"; outputs: {store.location}/{folder}"
    return ""


_PHASES = {
    JobStatus.PENDING: "waiting to start",
    JobStatus.RUNNING: "running",
}


def _offer_to_cancel(handle: JobHandle, console: Console, ask: Callable[[str], str] | None) -> None:
    console.note(
        f"The job keeps running: {handle.job_id}\n"
        f'  come back:  kinetic.attach("{handle.job_id}").result()\n'
        f"  its log:    kinetic jobs logs --follow {handle.job_id}\n"
        f"  stop it:    kinetic jobs cancel {handle.job_id}"
    )
    if ask is None:
        return
    try:
        answer = ask("Cancel it now? [y/N] ")
    except (KeyboardInterrupt, EOFError, OSError, RuntimeError, ValueError):
        # After a second Ctrl-C, or without a terminal, the job is kept.
        answer = ""
    if answer.strip().lower() in ("y", "yes"):
        console.phase("cancelling")
        handle.cancel()
        console.done()
        console.note(f"Cancelled {handle.job_id}.")
    else:
        console.note("The job was not cancelled.")
