"""Worker process: converts wheels to layers as its parent asks, and ends with it."""

from __future__ import annotations

import gc
import os
import resource
import signal
import sys
import threading
import warnings
from math import ceil
from pathlib import Path
from queue import SimpleQueue
from time import process_time
from typing import Final

import msgspec

from kinetic_images.builders.layers.conversion import write_layer
from kinetic_images.builders.layers.layer_file import LayerBlob
from kinetic_images.errors import InvalidWheelError
from kinetic_payload.files.private import FULL_DISK

_MOST_SECONDS: Final = 3600.0
"""The most CPU time for the size of a layer's files."""
MEMORY: Final = 256 << 20
"""The most bytes of memory of a worker."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A layer to write; one line of JSON on the worker's stdin."""

    wheels: tuple[str, ...]
    output: str
    """An existing file."""
    bytecode: bool
    seconds: float
    """CPU time that the job may take, besides the time for the size of the wheels' files."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a job; one line of JSON on the worker's stdout. Exactly one field is set."""

    blob: LayerBlob | None = None
    invalid: tuple[str, str] | None = None
    """Message and hint: a wheel cannot be installed."""
    failed: str = ""
    """A file cannot be read or written, for this reason."""
    full: bool = False
    """The disk is full."""


def main() -> None:
    """Do jobs until stdin ends."""
    # Ctrl-C on a terminal reaches all processes; the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.simplefilter("ignore")  # Of compiled modules.
    _limit(resource.RLIMIT_DATA, MEMORY)  # macOS does not enforce it.
    gc.disable()  # It takes a tenth of the time of compiling, which makes no cycles.
    lines: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_read, args=(lines,), daemon=True).start()
    while True:
        job = msgspec.json.decode(lines.get(), type=Job)
        sys.stdout.buffer.write(msgspec.json.encode(_done(job)) + b"\n")
        sys.stdout.buffer.flush()
        gc.collect()


def _read(lines: SimpleQueue[bytes]) -> None:
    """Pass on the lines of stdin, and end this process when the parent has ended or closes it."""
    for line in sys.stdin.buffer:
        lines.put(line)
    os._exit(_PARENT_ENDED)


_PARENT_ENDED: Final = 0


def _limit(kind: int, amount: int) -> None:
    """Lower the limit of a resource of this process, whatever a wheel says about itself."""
    _, most = resource.getrlimit(kind)
    resource.setrlimit(
        kind, (amount if most == resource.RLIM_INFINITY else min(amount, most), most)
    )


def _done(job: Job) -> Answer:
    def limit_time(seconds: float) -> None:
        # The kernel ends this process with SIGXCPU; nothing else ends the compiler.
        allowed = job.seconds + min(seconds, _MOST_SECONDS)
        _limit(resource.RLIMIT_CPU, ceil(process_time() + allowed))

    limit_time(0)  # Opening the wheels takes time, too.
    try:
        with Path(job.output).open("r+b") as stream:
            wheels = [Path(path) for path in job.wheels]
            blob = write_layer(wheels, stream, bytecode=job.bytecode, limit_time=limit_time)
            return Answer(blob=blob)
    except InvalidWheelError as error:
        return Answer(invalid=(error.message, error.hint or ""))
    except MemoryError:
        names = ", ".join(Path(path).name for path in job.wheels)
        message = f"A layer of {names} cannot be written with {MEMORY >> 20} MB of memory."
        return Answer(
            invalid=(message, "One of these files may be damaged or hostile. Use another version.")
        )
    except OSError as error:
        if error.errno in FULL_DISK:
            return Answer(full=True)
        return Answer(failed=f"{error.strerror or error} ({error.filename or job.output})")


if __name__ == "__main__":
    main()
