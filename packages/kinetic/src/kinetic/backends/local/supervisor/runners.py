"""The runners of one attempt: start, signal and reap them."""

from __future__ import annotations

import os

from kinetic.backends.local.supervisor.spec import SupervisorSpec
from kinetic.home.paths import JobFolder
from kinetic_payload import processes
from kinetic_payload.files.private import open_private
from kinetic_payload.lifeline import FAILED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinetic.backends.local.limits import MemoryLimit

_SIGKILL = 9


class Runner:
    """One host of one attempt."""

    def __init__(
        self, host: int, pid: int, lifeline: int | None = None, *, is_readable: bool = False
    ) -> None:
        self.host = host
        self.pid = pid
        self.lifeline = lifeline
        """The supervisor's end. If the supervisor dies, the runner reads an end of file on its own end."""
        self.reported_failure = False
        """Whether the runner reported that its function has failed."""
        self.is_readable = is_readable
        """Whether the runner may send something over the lifeline."""
        self.status: int | None = None
        """As returned by `waitpid`; None while the runner lives."""
        self._sent: set[int] = set()

    @property
    def failed(self) -> bool:
        """Whether it ended with an exit code other than 0 or by a signal."""
        return bool(self.status)

    @property
    def ended_by_us(self) -> bool:
        """Whether a signal from the supervisor ended it: SIGTERM does so while the runner is starting."""
        return self.status is not None and (self.status & 0x7F) in self._sent

    def signal(self, number: int) -> None:
        """Send a signal to the runner, which relays it."""
        if self.status is None:
            self._sent.add(number)
            os.kill(self.pid, number)  # Not reaped yet, so the pid is still its own.

    def send(self, message: bytes) -> None:
        """Send a message over the lifeline."""
        if self.status is None and self.lifeline is not None:
            try:
                os.write(self.lifeline, message)
            except OSError:
                return  # The runner is ending, or does not read its messages.

    def read_lifeline(self) -> None:
        """Read what the runner has sent over the lifeline."""
        try:
            data = os.read(self.lifeline, 512) if self.lifeline is not None else b""
        except BlockingIOError:
            return
        except ConnectionError:  # It ended without reading all messages.
            data = b""
        self.is_readable = bool(data)
        self.reported_failure = self.reported_failure or FAILED in data

    def close(self) -> None:
        """Kill it if it still runs, and close the lifeline."""
        self.kill()
        if self.lifeline is not None:
            os.close(self.lifeline)
            self.lifeline, self.is_readable = None, False

    def kill(self) -> None:
        """Kill it and its process group."""
        if self.status is None:
            self._sent.add(_SIGKILL)
            self.kill_group()

    def kill_group(self) -> None:
        """Kill its process group, unless it was reaped: then its id may be in use again."""
        if self.status is None:
            processes.signal_group(self.pid)


def start_runner(
    spec: SupervisorSpec,
    folder: JobFolder,
    *,
    attempt: int,
    host: int,
    coordinator: str,
    limit: MemoryLimit | None = None,
    workspace: int | None = None,
) -> Runner:
    """Start one host of *attempt*, or a worker, in a session of its own, with its output in its log.

    *workspace* is the number of its workspace, by default that of the host.
    """
    log = open_private(folder.log(attempt, host), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    both_ways = spec.hosts > 1
    if both_ways:
        import socket

        own_end, runner_end = (end.detach() for end in socket.socketpair())
    else:  # A single host sends nothing.
        runner_end, own_end = os.pipe()
    os.set_blocking(own_end, False)
    os.set_inheritable(runner_end, True)
    command, environment = spec.runner(
        attempt=attempt,
        host=host,
        workspace=folder.workspace(host if workspace is None else workspace),
        lifeline=runner_end,
        coordinator=coordinator,
    )
    try:

        def spawn() -> int:
            return processes.spawn(command, environment, (null, log, log))

        pid = limit.start(spawn) if limit is not None else spawn()
        return Runner(host, pid, own_end, is_readable=both_ways)
    except BaseException:
        os.close(own_end)
        raise
    finally:
        for fd in (log, null, runner_end):
            os.close(fd)


def reap(runners: Sequence[Runner]) -> None:
    """Reap all children that ended, adopted orphans too."""
    by_pid = {runner.pid: runner for runner in runners}

    def kill_group(pid: int) -> None:
        if pid in by_pid:
            by_pid[pid].kill_group()

    statuses, _ = processes.reap(before=kill_group)
    for pid, status in statuses.items():
        if pid in by_pid:
            by_pid[pid].status = status
