"""The children of a worker of a batch: one for each input, forked from a template where that is possible."""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Final

from kinetic_payload import processes
from kinetic_runner import TEMPLATE
from kinetic_runner.parent.child_process import Child, spawn, started
from kinetic_runner.parent.signals import SelfPipe

_ANSWER_SECONDS: Final = 30.0
"""Seconds that the template has to import its modules and to fork; then children are started without it."""


class Children:
    """Starts children with one *command*.

    Imports are most of a start. So children are forked from a template, a process that has imported the runner's
    modules and runs nothing of the user's. That needs Linux, where this process can adopt them.
    """

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], signals: SelfPipe
    ) -> None:
        self._command = command
        self._environment = environment
        self._signals = signals
        self._waiting: Child | None = None
        self._control: socket.socket | None = None
        """The connection to the template, which ends with it; None without a template."""
        self._template = 0
        if processes.adopt_orphans():
            with suppress(OSError):
                self._start_template()
        if self._control is None:
            self._waiting = spawn(command, environment)

    def _start_template(self) -> None:
        """Start `kinetic_runner.child.template` in a process of its own."""
        ours, theirs = socket.socketpair()
        null = os.open(os.devnull, os.O_RDWR)
        try:
            for fd in (theirs.fileno(), null):
                os.set_inheritable(fd, True)
            command = [*self._command, TEMPLATE, str(theirs.fileno()), str(null)]
            self._template = processes.spawn(
                command, self._environment, (null, 1, 2), makes_session=True
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
            os.close(null)
        self._control = ours

    def next(self) -> Child:
        """Return a child that waits for its task, the same one until it is `used`.

        Raises:
            OSError: The system starts no further process.
        """
        if self._waiting is None and self._control is not None:
            try:
                self._waiting = started(partial(self._fork, self._control))
                self._waiting.template = self._template
            except (OSError, ValueError):
                self.close()  # The template was killed, or cannot fork; or this process is to stop.
        if self._waiting is None:
            self._waiting = spawn(self._command, self._environment)
        return self._waiting

    def _fork(self, control: socket.socket, fds: Sequence[int], _: str) -> tuple[int, int]:
        socket.send_fds(control, [b"."], fds)
        until = monotonic() + _ANSWER_SECONDS
        while True:
            left = max(0.0, until - monotonic())
            ends = [control.fileno(), self._signals.fd]
            if control.fileno() in select.select(ends, [], [], left)[0]:
                pid, stop_fd = control.recv(64).split()
                return int(pid), int(stop_fd)
            self._signals.read()
            if not left or self._signals.stop_requested:
                raise TimeoutError

    def used(self, *, more: bool) -> None:
        """Note that the child that waited got its task; start another one ahead if *more* follow and starts take long."""
        self._waiting = None
        if more and self._control is None:
            with suppress(OSError):  # Then it is started when it is needed.
                self._waiting = spawn(self._command, self._environment)

    def is_waiting(self, child: Child) -> bool:
        """Tell whether *child* still waits for its task."""
        return child is self._waiting

    def close(self) -> None:
        """Let the template end, and kill the child that waits."""
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._waiting is not None:
            self._waiting.kill()
