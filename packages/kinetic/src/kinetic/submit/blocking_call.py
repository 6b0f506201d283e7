"""A call that blocks: submit, show progress and the log, bring the value; say how to come back."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from kinetic.console import Console, is_terminal
from kinetic.job_status import JobStatus

if TYPE_CHECKING:
    from kinetic.backends.backend import LogLine
    from kinetic.jobs.handle import JobHandle
    from kinetic.submit.request import JobRequest


class Submit(Protocol):
    """`kinetic.submit.submit.submit`, as far as a blocking call uses it."""

    def __call__(
        self,
        request: JobRequest,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        *,
        console: Console | None,
        started: list[JobHandle],
    ) -> JobHandle:
        """Start the job; the handle is in *started* from when it can no longer be taken back."""
        ...


def call(
    request: JobRequest,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    submit: Submit | None = None,
    console: Console | None = None,
    ask: Callable[[str], str] | None = None,
) -> Any:
    """Run *function* as *request* says, and return its value or raise its exception.

    Ctrl-C before the job started undoes the submit. Afterwards it says how to come back, asks on a
    terminal (with *ask*) whether to cancel, and is raised again. Of a job that has ended it says so.
    """
    if submit is None:
        from kinetic.submit.submit import submit as start_job

        submit = start_job
    if console is None:
        console = Console.of_this_process(color=not request.settings.no_color.value)
        if console.interactive and is_terminal(sys.stdin):
            ask = ask or input
    started: list[JobHandle] = []
    seen: JobStatus | None = None

    def tell(status: JobStatus) -> None:
        nonlocal seen
        seen = status
        _say(console, status)

    with console:
        try:
            handle = submit(request, function, args, kwargs, console=console, started=started)
            started[:] = [handle]
            if console.interactive:
                # Phases vanish from a terminal, and whoever closes it needs the id to come back.
                console.note(handle.job_id)
            return handle._collect(
                on_line=_shown(handle, console),
                on_status_change=tell,
                track=console.progress,
                warn=console.note,
            )
        except KeyboardInterrupt as stop:
            console.done()
            if not started:
                console.note(
                    "The job was not started. What was sent of its data need not be sent again."
                )
            elif seen is not None and seen.terminal:
                console.note(
                    f"The job has ended: {started[0].job_id}\n"
                    f"  its result: kinetic jobs result {started[0].job_id}\n"
                    f"  its log:    kinetic jobs logs {started[0].job_id}"
                )
            else:
                _interrupted(started[0], console, ask)
            # Without the frames in which we waited, and without what we were handling just then: they
            # would push what was said off the screen.
            raise stop.with_traceback(None) from None


def _shown(handle: JobHandle, console: Console) -> Callable[[LogLine], None]:
    """Return what shows a line of the log; for a debug job also what the line means for a debugger."""
    if not handle.debug:
        return console.line
    from kinetic.jobs.debugging import announcement_in

    def show(line: LogLine) -> None:
        console.line(line)
        announcement = announcement_in(line, handle)
        if announcement is not None:
            console.text(announcement)

    return show


_SAID = {
    JobStatus.PENDING: "waiting to start",
    JobStatus.RUNNING: "running",
}


def _say(console: Console, status: JobStatus) -> None:
    if status in _SAID:
        console.phase(_SAID[status])


def _interrupted(handle: JobHandle, console: Console, ask: Callable[[str], str] | None) -> None:
    console.note(
        f"The job goes on without you: {handle.job_id}\n"
        f'  come back:  kinetic.attach("{handle.job_id}").result()\n'
        f"  its log:    kinetic jobs logs --follow {handle.job_id}\n"
        f"  stop it:    kinetic jobs cancel {handle.job_id}"
    )
    if ask is None:
        return
    try:
        answer = ask("Cancel it now? [y/N] ")
    except (KeyboardInterrupt, EOFError, OSError, RuntimeError, ValueError):
        # A second Ctrl-C is no answer, nor is a terminal that is gone: the job is kept, as the note says.
        answer = ""
    if answer.strip().lower() in ("y", "yes"):
        console.phase("cancelling")
        handle.cancel()
        console.done()
        console.note(f"Cancelled {handle.job_id}.")
    else:
        console.note("Kept.")
