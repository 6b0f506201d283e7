"""(child) Start the child again in the same process, so that it finds packages that were just installed."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Final, NoReturn

from kinetic_runner.task import Task

FLAG: Final = "--task"
"""The argument of a restarted child that is followed by its task."""
_SIGNALS: Final = {signal.SIGTERM, signal.SIGURG}


def restart(task: Task, variables: Mapping[str, str], *, without: Sequence[str]) -> NoReturn:
    """Run this child again as a new program that goes on with *task*.

    Its pid, its pipes and its arguments stay. *variables* are added to its environment, and those named in
    *without* are removed. A stop that is requested meanwhile reaches the new program.
    """
    ambient = os.environ  # noqa: TID251 - passed on as a whole
    environment = {name: text for name, text in ambient.items() if name not in without}
    before, fds = sys.orig_argv[1:-2], sys.orig_argv[-2:]
    for fd in (*map(int, fds), task.stop_fd):
        if fd is not None:
            os.set_inheritable(fd, True)
    sys.stdout.flush()
    sys.stderr.flush()
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    os.execve(  # noqa: S606
        sys.executable,
        [sys.executable, *before, FLAG, task.encode(), *fds],
        {**environment, **variables},
    )


def restarted_task(argv: Sequence[str]) -> Task | None:
    """Return the task with which this child was started again; None if it was not."""
    return Task.decode(argv[argv.index(FLAG) + 1]) if FLAG in argv else None


def receive_signals() -> None:
    """Receive the signals that came since `restart`."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
