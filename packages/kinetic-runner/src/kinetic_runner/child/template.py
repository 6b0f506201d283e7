"""(child) A template: a process that has imported the runner's modules, and forks a child for each input."""

from __future__ import annotations

import gc
import os
import socket
from contextlib import suppress
from typing import Final

from kinetic_runner.parent.child_process import set_native_id

_PIPES: Final = 5


def serve(control_fd: int, report_fd: int) -> None:
    """Fork a child for each request from *control_fd*; return in the child, whose descriptors are as after a start.

    A request brings its ends of the pipes for task, reports, output, errors and stop requests. The first two take the places
    of *control_fd* and *report_fd*. The answer has the id of the child, whose parent is this process's own parent, and
    the descriptor of the last one. This process ends with its parent.
    """
    gc.freeze()  # Children then share the memory of the modules with this process.
    control = socket.socket(fileno=control_fd)
    with suppress(OSError):  # The worker ended, or waits no longer.
        # A fork of a process with threads, such as those of a `sitecustomize`, can deadlock.
        while len(os.listdir("/proc/self/task")) == 1:  # noqa: PTH208
            _, fds, _, _ = socket.recv_fds(control, 1, _PIPES, socket.MSG_CMSG_CLOEXEC)
            if len(fds) != _PIPES:
                break
            answer, answered = os.pipe()
            between = os.fork()
            if not between:
                try:
                    if os.fork():
                        os._exit(0)  # Its child becomes one of the adopting process.
                    control.detach()
                    _take_over(fds, control_fd, report_fd)
                    os.write(answered, f"{os.getpid()} {fds[-1]}".encode())
                except OSError:
                    os._exit(1)
                os.close(answer)
                os.close(answered)
                return
            for fd in (answered, *fds):
                os.close(fd)
            text = os.read(answer, 64)
            os.close(answer)
            os.waitpid(between, 0)
            control.send(text or b"?")
    os._exit(0)


def _take_over(fds: list[int], control_fd: int, report_fd: int) -> None:
    os.setsid()
    task, report, output, errors, _ = fds
    for fd, number in ((task, control_fd), (report, report_fd), (output, 1), (errors, 2)):
        os.dup2(fd, number, inheritable=number in (1, 2))
    for fd in (task, report, output, errors):
        os.close(fd)
    set_native_id()
