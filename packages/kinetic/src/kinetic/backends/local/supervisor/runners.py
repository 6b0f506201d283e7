"""The runners of one attempt: start, signal and reap them, and whatever they leave behind."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # What `signal` wraps; here without its 4 ms.
import os
import sys

from kinetic.backends.local.paths import JobFolder
from kinetic.backends.local.supervisor.spec import SupervisorSpec
from kinetic_payload.files.private import open_private
from kinetic_payload.lifeline import FAILED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinetic.backends.local.limits import MemoryLimit
    from kinetic.backends.local.supervisor.descendants import Descendants

_SIGKILL = 9
_FRESH = _signal.valid_signals() - {_SIGKILL, _signal.SIGSTOP}
"""What the submitter or we ignore, a runner does not, nor do the user's processes."""


class Runner:
    """One host of one attempt."""

    def __init__(
        self, host: int, pid: int, lifeline: int | None = None, *, listening: bool = False
    ) -> None:
        self.host = host
        self.pid = pid
        self.lifeline = lifeline
        """Our end. If we die, the runner's ends, and so does the runner."""
        self.said_failed = False
        """Whether it said that its function has failed."""
        self.listening = listening
        """Whether it may say something over the lifeline."""
        self.status: int | None = None
        """As `waitpid` gives it; None while it lives."""
        self._sent: set[int] = set()

    @property
    def failed(self) -> bool:
        """Whether it ended, and not well."""
        return bool(self.status)

    @property
    def ended_by_us(self) -> bool:
        """Whether it died of a signal that we sent: of SIGTERM, while it was still starting."""
        return self.status is not None and (self.status & 0x7F) in self._sent

    def signal(self, number: int) -> None:
        """Send a signal to the runner, which relays it."""
        if self.status is None:
            self._sent.add(number)
            os.kill(self.pid, number)  # Not reaped, so the pid is its own.

    def say(self, message: bytes) -> None:
        """Send a message over the lifeline."""
        if self.status is None and self.lifeline is not None:
            try:
                os.write(self.lifeline, message)
            except OSError:
                return  # It is ending, or never read any of them.

    def listen(self) -> None:
        """Take what the runner has said over the lifeline."""
        try:
            data = os.read(self.lifeline, 512) if self.lifeline is not None else b""
        except BlockingIOError:
            return
        except ConnectionError:  # It ended, and left something unread.
            data = b""
        self.listening = bool(data)
        self.said_failed = self.said_failed or FAILED in data

    def close(self) -> None:
        """Kill it if it still runs, and let go of the lifeline."""
        self.kill()
        if self.lifeline is not None:
            os.close(self.lifeline)
            self.lifeline, self.listening = None, False

    def kill(self) -> None:
        """Kill it and its process group."""
        if self.status is None:
            self._sent.add(_SIGKILL)
            self.kill_group()

    def kill_group(self) -> None:
        """Kill its process group. Once it was reaped, its number may be a stranger's: nothing happens."""
        if self.status is None:
            try:
                os.killpg(self.pid, _SIGKILL)
            except (ProcessLookupError, PermissionError):
                return  # macOS says the latter of a group of zombies.


def start_runner(
    spec: SupervisorSpec,
    folder: JobFolder,
    *,
    attempt: int,
    host: int,
    coordinator: str,
    limit: MemoryLimit | None = None,
) -> Runner:
    """Start one host of *attempt*, in a session of its own, with its output in its log."""
    log = open_private(folder.log(attempt, host), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    ours, theirs = _lifeline(both_ways=spec.hosts > 1)
    command, environment = spec.runner(
        attempt=attempt,
        host=host,
        workspace=folder.workspace(host),
        lifeline=theirs,
        coordinator=coordinator,
    )
    try:

        def spawn() -> int:
            return _spawn(command, environment, (null, log, log))

        pid = limit.start(spawn) if limit is not None else spawn()
        return Runner(host, pid, ours, listening=spec.hosts > 1)
    except BaseException:
        os.close(ours)
        raise
    finally:
        for fd in (log, null, theirs):
            os.close(fd)


def _lifeline(*, both_ways: bool) -> tuple[int, int]:
    """Return our end and a runner's. What a single host says would interest nobody."""
    if both_ways:
        import socket

        ours, theirs = (end.detach() for end in socket.socketpair())
    else:
        theirs, ours = os.pipe()
    os.set_blocking(ours, False)
    os.set_inheritable(theirs, True)
    return ours, theirs


def _spawn(command: list[str], environment: dict[str, str], files: tuple[int, ...]) -> int:
    actions = [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate(files)]
    try:
        return os.posix_spawn(
            command[0],
            command,
            environment,
            file_actions=actions,
            setsid=True,
            setsigdef=_FRESH,
            setsigmask=(),
        )
    except NotImplementedError:  # An old system: a group of its own is the next best.
        return os.posix_spawn(
            command[0],
            command,
            environment,
            file_actions=actions,
            setpgroup=0,
            setsigdef=_FRESH,
            setsigmask=(),
        )


def reap(runners: Sequence[Runner]) -> bool:
    """Collect whatever ended, adopted orphans too; return whether any child is left."""
    by_pid = {runner.pid: runner for runner in runners}
    while True:
        try:
            ended = _first_ended()
            if ended == 0:
                return True
            if ended in by_pid:
                by_pid[ended].kill_group()  # As long as it is not reaped, its number is its own.
            pid, status = os.waitpid(ended, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True
        if pid in by_pid:
            by_pid[pid].status = status


def _first_ended() -> int:
    """Return the pid of a child that ended and is not reaped yet, 0 if there is none; -1: not known."""
    if not hasattr(
        os, "waitid"
    ):  # macOS before Python 3.13; what a group leaves is swept a bit later.
        return -1
    found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    return found.si_pid if found is not None else 0


def has_children(pid: int) -> bool:
    """Return whether process *pid*, which is not reaped yet, has a child that lives."""
    if os.path.isdir("/proc/self"):  # noqa: PTH112 - light
        return any(_parent_of(child) == pid for child in _all_pids())
    import psutil

    try:
        children = psutil.Process(pid).children()
        return any(child.status() != psutil.STATUS_ZOMBIE for child in children)
    except psutil.Error:
        return True  # As far as is known.


def adopt_orphans() -> bool:
    """Become the parent of descendants whose own parent dies; return whether we are."""
    if sys.platform != "linux":
        return False
    try:
        import ctypes

        set_child_subreaper = 36
        return bool(ctypes.CDLL(None).prctl(set_child_subreaper, 1, 0, 0, 0) == 0)
    except (ImportError, OSError, AttributeError):
        return False


def kill_remains(marker: str, *, adopting: bool, descendants: Descendants | None = None) -> bool:
    """Kill what is left of a job's processes, one round of `sweep`; return whether nothing was.

    *marker* is the `NAME=value` in their environment; *descendants* may be without it.
    """
    if not adopting:
        found = marked(marker)
        for pid in found:
            _kill_marked(pid, marker)
        return (descendants is None or descendants.kill()) and not found
    if not reap(()):
        return True
    found = [pid for pid in _all_pids() if _parent_of(pid) == os.getpid()]
    for pid in found:
        try:
            os.kill(pid, _SIGKILL)  # Our children keep their numbers until we reap them.
        except (ProcessLookupError, PermissionError):
            continue
    return not found


def marked(marker: str) -> list[int]:
    """Return the pids of living processes, other than ours, with *marker* in their environment."""
    if os.path.isdir("/proc/self"):  # noqa: PTH112 - light
        wanted = marker.encode()
        return [
            pid
            for pid in _all_pids()
            if pid != os.getpid() and wanted in _proc(pid, "environ").split(b"\0")
        ]
    import psutil

    name, _, value = marker.partition("=")
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get(name) == value:
                found.append(process.pid)
        except (psutil.Error, OSError):
            continue
    return found


def _kill_marked(pid: int, marker: str) -> None:
    """Kill process *pid* if it still is the one with *marker* in its environment."""
    import signal

    try:
        if hasattr(os, "pidfd_open"):
            fd = os.pidfd_open(pid)
            try:
                if marker.encode() in _proc(pid, "environ").split(b"\0"):
                    signal.pidfd_send_signal(fd, _SIGKILL)
            finally:
                os.close(fd)
            return
    except OSError:
        pass  # It is gone, or the kernel is old.
    import psutil

    name, _, value = marker.partition("=")
    try:
        process = psutil.Process(pid)
        if process.environ().get(name) == value:
            process.kill()  # It looks at the start time.
    except (psutil.Error, OSError):
        return


def _all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - light


def _parent_of(pid: int) -> int | None:
    # The command's name may hold anything, also parentheses: fields begin after the last.
    fields = _proc(pid, "stat").rpartition(b")")[2].split()[:2]
    return int(fields[1]) if len(fields) > 1 and fields[0] != b"Z" else None


def _proc(pid: int, name: str) -> bytes:
    try:
        with open(f"/proc/{pid}/{name}", "rb") as stream:  # noqa: PTH123 - light
            return stream.read()
    except OSError:
        return b""
