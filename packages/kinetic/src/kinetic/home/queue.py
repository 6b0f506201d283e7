"""The queue of local jobs: which of them run, which wait, and the process that starts those that wait.

Its folder in the home has an empty file for each job: `running-JOB`, or `NUMBER-LIMIT-JOB` of a job that waits, in the
order of the submits. A job that waits is a folder with a file that says how to start its supervisor; no process belongs
to it. One process for all of them, the starter, waits for the ends of the jobs that run. If it is killed, or the machine
goes down, the next submit, the next end of a job or the next look at one that waits starts it again.

Whether a job runs is decided by its pipes (`liveness`), so that a process which is killed never keeps a place.
"""

from __future__ import annotations

import errno
import json
import os
import select
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

import kinetic_payload
from kinetic.home.detached import base_environment, reap, start_detached
from kinetic.home.liveness import Pipes, is_alive, open_life
from kinetic.home.paths import Home, JobFolder
from kinetic_payload.files.locks import locked, try_lock
from kinetic_payload.files.private import make_folder, open_private, write_private

_RUNNING = "running-"
_LOOK_SECONDS = 0.5
"""Seconds after which the starter looks again: a fork of a client may hold a pipe of a job that has ended."""
_LASTING = (errno.ENOENT, errno.EACCES, errno.ENOEXEC, errno.ENOTDIR)
"""Errors of a start that do not pass: the interpreter is gone. Others may be limits of the system."""
_START = (
    "import sys; sys.path += sys.argv[2:]; package = type(sys)('kinetic'); "
    "package.__path__ = [sys.argv[2] + '/kinetic']; sys.modules['kinetic'] = package; "
    "from kinetic.home.queue import main; main()"
)


class Start:
    """How a supervisor is started: before and after the numbers of its FIFOs on its command line, and its variables."""

    def __init__(
        self, head: Sequence[str], tail: Sequence[str], environment: Mapping[str, str]
    ) -> None:
        self.head, self.tail, self.environment = head, tail, environment

    def run(self, folder: JobFolder, pipes: Pipes, stdin: int) -> None:
        """Start it, with its spec as *stdin*.

        Raises:
            OSError: It could not be started.
        """
        fds = pipes.for_supervisor
        log = open_private(folder.supervisor_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            command = [*self.head, *map(str, fds), *self.tail]
            start_detached(
                command, environment=self.environment, stdin=stdin, output=log, pass_fds=fds
            )
        finally:
            os.close(log)

    def write(self, path: str, spec: bytes) -> None:
        """Write it and *spec* for the starter. Captured variables are secret: only this user can read the file."""
        write_private(path, json.dumps(vars(self)).encode() + b"\n" + spec)


@contextmanager
def turn(home: Home, job_id: str, limit: int | None) -> Iterator[bool]:
    """Put a job into the queue, and start or write it in the block; yield whether it has to wait.

    It may start if no other job waits and fewer than *limit* run; None: it takes no place, and does not wait.
    """
    if limit is None:
        yield False
        return
    make_folder(home.queue)
    with locked(home.queue_lock):
        running, waiting = _read(home)
        waits = bool(waiting) or len(running) >= limit
        number = int(waiting[-1].partition("-")[0]) + 1 if waiting else 0
        entry = f"{home.queue}/{f'{number:012d}-{limit}-' if waits else _RUNNING}{job_id}"
        os.close(open_private(entry, os.O_WRONLY | os.O_CREAT))
        yield waits
    if waits:
        ensure_starter(home)


def withdraw(home: Home, job_id: str) -> None:
    """Let a job that waits never start; do nothing if it does not wait."""
    with suppress(FileNotFoundError), locked(home.queue_lock):
        os.unlink(home.job(job_id).waiting)  # noqa: PTH108 - light
        for name in _read(home)[1]:
            if name.endswith(f"-{job_id}"):
                os.unlink(f"{home.queue}/{name}")  # noqa: PTH108 - light


def why_waiting(home: Home, job_id: str) -> str:
    """Return why a job waits: which jobs run, and how many wait before it."""
    names = _names(home)
    running = [name.removeprefix(_RUNNING) for name in names if name.startswith(_RUNNING)]
    holders = [job for job in running if is_alive(home.job(job))]
    waiting = [name for name in names if not name.startswith(_RUNNING)]
    own = next((name for name in waiting if name.endswith(f"-{job_id}")), None)
    if own is None:
        return "It is about to start."
    limit, ahead = own.split("-", 2)[1], waiting.index(own)
    few = ", ".join(holders[:3]) + (f" and {len(holders) - 3} more" if len(holders) > 3 else "")
    return (
        f"It waits for a place: at most {limit} local jobs run at once (KINETIC_LOCAL_JOBS), {len(holders)} run"
        f"{f' ({few})' if few else ''}, and {ahead} wait before it."
    )


def ensure_starter(home: Home) -> None:
    """Start the starter if a job waits and no starter lives."""
    if all(name.startswith(_RUNNING) for name in _names(home)):
        return
    fd = open_private(home.starter_lock, os.O_RDWR | os.O_CREAT)
    try:
        lives = not try_lock(fd)
    finally:
        os.close(fd)
    if not lives:
        folders = [os.path.dirname(path) for path in (_PACKAGE, *kinetic_payload.__path__)]  # noqa: PTH120
        start_detached(
            [sys.executable, "-I", "-S", "-c", _START, home.path, *dict.fromkeys(folders)],
            environment=base_environment(os.environ),  # noqa: TID251 - what any program needs
        )


_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120


def main() -> None:
    """Start jobs of the home `argv[1]` as others end, until none waits."""
    home = Home(sys.argv[1])
    fd = open_private(home.starter_lock, os.O_RDWR | os.O_CREAT)
    # Another process that looks whether a starter lives has the lock for a moment.
    tries = iter(range(20))
    while not try_lock(fd):
        if next(tries, None) is None:
            return
        select.select([], [], [], 0.02)
    while True:
        reap()
        with locked(home.queue_lock):
            _start_due(home)
            running, waiting = _read(home)
            if not waiting:
                os.close(fd)  # Here, so that a submit which sees a starter is seen by it.
                return
        poll = select.poll()
        lives = [life for job in running if (life := open_life(home.job(job))) is not None]
        for life in lives:
            poll.register(life, select.POLLIN)
        # A job that ended meanwhile has freed a place.
        poll.poll(0 if len(lives) < len(running) else int(_LOOK_SECONDS * 1000))
        for life in lives:
            os.close(life)


def _start_due(home: Home) -> None:
    """Start jobs in the order of their submits, as long as there is a place for the first; under the lock."""
    while True:
        running, waiting = _read(home)
        if not waiting:
            return
        name = waiting[0]
        _, limit, job_id = name.split("-", 2)
        if len(running) >= int(limit):
            return
        folder, place = home.job(job_id), f"{home.queue}/{_RUNNING}{job_id}"
        os.close(open_private(place, os.O_WRONLY | os.O_CREAT))
        try:
            # Not twice, if an earlier starter was killed after it.
            if not os.path.isdir(folder.attempt(1)):  # noqa: PTH112 - light
                _start(folder)
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno not in _LASTING:
                os.unlink(place)  # noqa: PTH108 - light
                return
            with suppress(OSError):
                log = open_private(folder.supervisor_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
                os.write(log, f"The supervisor could not be started: {error}\n".encode())
                os.close(log)
        with suppress(FileNotFoundError):
            os.unlink(folder.waiting)  # noqa: PTH108 - light
        os.unlink(f"{home.queue}/{name}")  # noqa: PTH108 - light


def _start(folder: JobFolder) -> None:
    with open(folder.waiting, "rb", buffering=0) as stream:  # noqa: PTH123 - light
        data = stream.readall()
        end = data.index(b"\n") + 1
        os.lseek(stream.fileno(), end, os.SEEK_SET)
        pipes = Pipes(folder)
        try:
            Start(**json.loads(data[:end])).run(folder, pipes, stream.fileno())
        finally:
            pipes.close()


def _names(home: Home) -> list[str]:
    """Return the names of its files. Others' may lie there, such as `.DS_Store`."""
    try:
        names = os.listdir(home.queue)  # noqa: PTH208 - light
    except FileNotFoundError:
        return []
    return sorted(name for name in names if name.startswith(_RUNNING) or name[0].isdigit())


def _read(home: Home) -> tuple[list[str], list[str]]:
    """Return the ids of the jobs that run, and the files of those that wait, in their order; under the lock.

    The files of jobs that have ended are removed.
    """
    running, waiting = [], []
    for name in _names(home):
        if not name.startswith(_RUNNING):
            waiting.append(name)
            continue
        job_id = name.removeprefix(_RUNNING)
        life = open_life(home.job(job_id))
        if life is None:
            os.unlink(f"{home.queue}/{name}")  # noqa: PTH108 - light
        else:
            os.close(life)
            running.append(job_id)
    return running, waiting
