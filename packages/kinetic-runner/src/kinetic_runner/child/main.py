"""(child) The entry of the process that runs the user's code: read the task, report the outcome, exit."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NoReturn

from kinetic_payload.files.private import make_folder, open_private
from kinetic_payload.layout import EXIT_FUNCTION_FAILED, EXIT_NOT_PREPARED, Env
from kinetic_payload.records.encode import encode
from kinetic_payload.records.host_outcome import ErrorInfo, HostOutcome, Phase
from kinetic_runner import TEMPLATE, WARM
from kinetic_runner.child.shutdown import RESTARTED, leave_if_forked, shut_down
from kinetic_runner.child.streams import flush, identity, print_error, write_completely
from kinetic_runner.hosts import tpu_variables
from kinetic_runner.task import Task
from kinetic_runner.workspace import Workspace

Send = Callable[[dict[str, Any]], None]
Pipeline = Callable[[Task, Send], HostOutcome]


def run_child(argv: Sequence[str], pipeline: Pipeline | None = None) -> NoReturn:
    """Run the task that comes over the descriptor `argv[-2]`; report to `argv[-1]`.

    *pipeline* is `kinetic_runner.child.pipeline.run` by default.
    """
    gc.disable()  # The modules imported now stay in memory, so collections would only take time.
    task_fd, report_fd = int(argv[-2]), int(argv[-1])
    for fd in (task_fd, report_fd):
        os.set_inheritable(fd, False)
    if os.getsid(0) != os.getpid():
        os.setsid()  # On systems where `posix_spawn` cannot.
    task = Task.decode(argv[argv.index(RESTARTED) + 1]) if RESTARTED in argv else None
    if task is not None:
        from kinetic_runner.child.installer import make_importable

        make_importable(
            Workspace(task.arguments.workspace).environment,
            lambda line: print_error(f"[kinetic] {line}\n"),
        )
    failure: ImportError | None = None
    if pipeline is None:
        # Before the task arrives: meanwhile the parent claims the attempt.
        try:
            from kinetic_runner.child import pipeline as standard

            pipeline = standard.run
        except ImportError as error:
            failure = error
    if WARM in argv:
        # The client of buckets takes longer to import than a claim. Later imports report a failure.
        with suppress(Exception):
            from kinetic_payload.stores import gcs  # noqa: F401
    if TEMPLATE in argv and task is None:
        from kinetic_runner.child.template import serve

        serve(task_fd, report_fd)
    write_completely()
    _raise_file_limit()
    task = task or _read_task(task_fd)
    gc.freeze()
    gc.enable()
    if task.stop_fd is not None:
        os.set_inheritable(task.stop_fd, False)
    _die_with_parent(task_fd)
    _name_host_in_environment(task)
    reports = _Reports(report_fd, task.report_file)
    me = os.getpid()
    try:
        if pipeline is None:
            assert failure is not None
            raise failure
        outcome = pipeline(task, reports.send)
    except BaseException as error:  # noqa: BLE001  # every failure is reported
        leave_if_forked(me, error)
        outcome = _unhandled_failure(task, reports.phase, error)
    leave_if_forked(me)
    flush()
    reports.send_line(b'{"outcome": ' + encode(outcome) + b"}\n")
    if task.record.hosts > 1 and not outcome.succeeded:
        from kinetic_runner.child import distributed

        distributed.take_connection()
    try:
        shut_down(task.linger)
        if task.record.hosts > 1:
            _leave_slice(
                reports, succeeded=outcome.succeeded, hold=(task.arguments.lifeline is not None)
            )
    finally:
        # Not sys.exit: threads that user code left behind would keep the process alive.
        os._exit(outcome.exit_code)


def _read_task(fd: int) -> Task:
    with open(fd, encoding="utf-8", closefd=False) as stream:
        line = stream.readline()
    if not line.endswith("\n"):
        os._exit(EXIT_NOT_PREPARED)  # The parent ended, or prints why there is no task.
    return Task.decode(line)


def _leave_slice(reports: _Reports, *, succeeded: bool, hold: bool) -> None:
    """Leave the other hosts of a slice, if this one joined them; the parent may kill this process meanwhile."""
    import threading

    from kinetic_runner.child import distributed

    connection = distributed.taken_connection()
    if connection is None:
        return
    if succeeded:
        reports.send({"parting": "together"})
        connection.shut_down()
    elif hold and connection.coordinates:
        # When the coordinator ends, JAX aborts the other hosts, which may still be cleaning up.
        connection.disconnect()
        reports.send({"parting": "last"})
        threading.Event().wait()


def _raise_file_limit() -> None:
    """Let user code open more files than a shell allows: 256 on macOS, often 1,024 on Linux."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    infinite = resource.RLIM_INFINITY
    wanted = _OPEN_FILES if hard == infinite else min(hard, _OPEN_FILES)
    if soft != infinite and soft < wanted:
        with suppress(ValueError, OSError):  # The system may have a limit of its own.
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


_OPEN_FILES = 10240
"""`OPEN_MAX` of macOS, the highest soft limit that it accepts."""


class _Reports:
    """Sends reports to the parent: through a pipe, or to a file once user code has closed the pipe."""

    def __init__(self, fd: int, file: str) -> None:
        self.phase: Phase = "fetch"
        self._fd = fd
        self._file = file
        self._pipe = identity(fd)
        self._pid = os.getpid()

    def send(self, message: dict[str, Any]) -> None:
        import json

        self.phase = message.get("phase", self.phase)
        if os.getpid() == self._pid:
            self.send_line(json.dumps(message).encode() + b"\n")

    def send_line(self, line: bytes) -> None:
        try:
            # By now the descriptor may belong to a file of user code.
            if self._pipe is not None and identity(self._fd) == self._pipe:
                _write(self._fd, line)
                return
        except OSError:
            pass
        self._pipe = None  # All later lines go to the file as well.
        with suppress(OSError):  # Then the parent has only the exit code.
            make_folder(os.path.dirname(self._file))  # noqa: PTH120
            fd = open_private(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            try:
                _write(fd, line)
            finally:
                os.close(fd)


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _name_host_in_environment(task: Task) -> None:
    # The attempt's number was not known when this process started, nor the input.
    given = task.given
    os.environ.update(  # noqa: TID251
        {
            Env.JOB_ID: task.record.job_id,
            Env.ATTEMPT: str(task.attempt),
            Env.HOST_INDEX: str(task.host),
            Env.HOST_COUNT: str(task.record.hosts),
            **tpu_variables(os.environ, task.host),  # noqa: TID251
            **(
                {
                    Env.BATCH_INDEX: str(given.index),
                    Env.BATCH_SIZE: str(given.of),
                    Env.OUTPUT_DIR: given.output_dir,
                }
                if given
                else {}
            ),
        }
    )


def _die_with_parent(fd: int) -> None:
    """Make sure that the process group is killed when the parent's end of the task's pipe closes."""
    import signal

    if sys.platform == "linux":
        import fcntl
        import select

        # The kernel sends the signal. This needs no thread (a private mount namespace allows none), and
        # native code that holds the interpreter's lock cannot delay it.
        fcntl.fcntl(fd, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC)
        if select.select([fd], [], [], 0)[0]:  # The parent has already ended.
            os.killpg(0, signal.SIGKILL)
    else:
        import threading

        me = os.getpid()

        def wait_for_end() -> None:
            with suppress(OSError):  # User code closed the descriptor.
                while os.read(fd, 1):
                    continue
                if os.getpid() == me:
                    os.killpg(0, signal.SIGKILL)

        threading.Thread(target=wait_for_end, name="lifeline", daemon=True).start()


def _unhandled_failure(task: Task, phase: Phase, error: BaseException) -> HostOutcome:
    """Return the outcome of a failure that the pipeline did not handle."""
    import platform

    from kinetic_runner.child.tracebacks import message_of, text_of, type_name

    text = message_of(error)
    message = f"The runner failed in the phase {phase!r}: {type(error).__name__}: {text}"
    if isinstance(error, ModuleNotFoundError) and error.name == "cloudpickle":
        message = (
            f"cloudpickle is not installed for {sys.executable}. "
            "Kinetic needs it to load the call: add cloudpickle to the environment or image."
        )
    print_error(f"[kinetic] {message}\n")
    called = phase in ("call", "report")
    return HostOutcome(
        job_id=task.record.job_id,
        attempt=task.attempt,
        host=task.host,
        succeeded=False,
        reason="exception",
        phase=phase,
        exit_code=EXIT_FUNCTION_FAILED if called else EXIT_NOT_PREPARED,
        message=message,
        error=ErrorInfo(type=type_name(error), message=text, traceback=text_of(error)),
        python=platform.python_version(),
    )
