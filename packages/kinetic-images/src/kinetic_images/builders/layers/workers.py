"""Worker processes: start, ask and end them. Threads would compile modules half as fast."""

from __future__ import annotations

import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty
from types import TracebackType
from typing import Final, Self

import msgspec

from kinetic_images.builders.layers.layer_file import LayerBlob
from kinetic_images.builders.layers.worker import Answer, Job
from kinetic_images.errors import BuildError, InvalidWheelError
from kinetic_payload.queues import TimedQueue
from kinetic_payload.threads import check_wanted

_START: Final = (
    "import sys; sys.path += [path for path in sys.argv[1:] if path not in sys.path]; "
    "from kinetic_images.builders.layers.worker import main; main()"
)
_POLL: Final = 0.1
"""Seconds between checks whether a conversion should be stopped."""
_LONGEST_OUTPUT: Final = 4000


class Workers:
    """Up to *count* worker processes, started when they are needed. Threads can share it.

    A layer may take *seconds* of CPU time, besides the time for the size of its files.

    At the end of the `with` block they are killed. They also end if this process is killed.
    """

    def __init__(self, count: int, *, seconds: float = 20.0) -> None:
        self._seconds = seconds
        self._free: TimedQueue[_Worker | None] = TimedQueue()
        for _ in range(count):
            self._free.put(None)
        self._started: list[_Worker] = []

    def convert(self, wheels: Sequence[Path], output: str, *, bytecode: bool) -> LayerBlob:
        """Write the layer of *wheels* into the existing file *output*.

        Raises:
            InvalidWheelError: A wheel cannot be installed.
            BuildError: The disk is full, or the process ended early.
            Stopped: The result is no longer needed.
        """
        worker = self._take()
        try:
            job = Job(
                wheels=tuple(map(str, wheels)),
                output=output,
                bytecode=bytecode,
                seconds=self._seconds,
            )
            answer = worker.do(job)
        except BaseException:
            worker.kill()
            self._free.put(None)
            raise
        self._free.put(worker)
        if answer.blob is not None:
            return answer.blob
        if answer.invalid is not None:
            raise InvalidWheelError(answer.invalid[0], hint=answer.invalid[1])
        if answer.full:
            raise BuildError(
                f"There is no room for the layer {output}.",
                hint="Make room on that disk, or move Kinetic's home with KINETIC_HOME.",
            )
        raise BuildError(f"A layer could not be written: {answer.failed}.")

    def _take(self) -> _Worker:
        while True:
            check_wanted()
            try:
                worker = self._free.get(_POLL)
            except Empty:
                continue
            if worker is None:
                worker = _Worker()
                self._started.append(worker)
            return worker

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for worker in self._started:
            worker.kill()


class _Worker:
    def __init__(self) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `kill`
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-c", _START, *sys.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )
        self._killed = False

    def do(self, job: Job) -> Answer:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = b""
        try:
            self._process.stdin.write(msgspec.json.encode(job) + b"\n")
            self._process.stdin.flush()
            line = self._line()
        except BrokenPipeError:
            pass  # It has ended, as after an empty line.
        if not line:
            raise self._ended(job)
        return msgspec.json.decode(line, type=Answer)

    def _line(self) -> bytes:
        stdout = self._process.stdout
        assert stdout is not None
        poll = select.poll()
        poll.register(stdout, select.POLLIN)
        while not poll.poll(_POLL * 1000):
            check_wanted()
        return stdout.readline()

    def _ended(self, job: Job) -> BuildError:
        code = self._process.wait()
        names = ", ".join(Path(path).name for path in job.wheels)
        if code == -signal.SIGXCPU:
            return InvalidWheelError(
                f"A layer of {names} takes too much time: a module may be made to hang the compiler.",
                hint="Use another version of the package, or report this to its authors.",
            )
        self._errors.seek(0)
        output = self._errors.read()[-_LONGEST_OUTPUT:].decode(errors="replace").strip()
        return BuildError(
            f"The process that writes a layer of {names} ended early (exit code {code})."
            + (f"\n{output}" if output else ""),
            hint="If its exit code is -9, the machine may be out of memory."
            if code == -9
            else None,
        )

    def kill(self) -> None:
        if self._killed:
            return
        self._killed = True
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None:
                with suppress(OSError):  # What was not sent cannot be flushed.
                    stream.close()
