"""Worker process: converts the wheels of one layer, with limits of memory and CPU time."""

from __future__ import annotations

import gc
import json
import os
import resource
import select
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from math import ceil
from pathlib import Path
from time import process_time
from typing import Any, Final

from kinetic_images.builders.layers.conversion import write_layer
from kinetic_images.builders.layers.layer_file import LayerBlob
from kinetic_images.errors import BuildError, InvalidWheelError
from kinetic_payload.threads import check_wanted

_START: Final = (
    "import sys; sys.path += [path for path in sys.argv[1:] if path not in sys.path]; "
    "from kinetic_images.builders.layers.worker import main; main()"
)
_POLL_MILLISECONDS: Final = 100
_LONGEST_OUTPUT: Final = 4000
_MOST_SECONDS: Final = 3600.0
_RATE: Final = 20e3
"""Bytes of a wheel that are compiled in a second of CPU time, at least: a slow machine took 4 s for a megabyte of modules,
which are a quarter of that in a wheel."""
MEMORY: Final = 256 << 20
"""The most bytes of memory of a worker."""


def convert(
    wheels: Sequence[Path], output: str, *, bytecode: bool, seconds: float = 60.0
) -> LayerBlob:
    """Write the layer of *wheels* into the existing file *output*, in a process of its own.

    It may take *seconds* of CPU time, besides the time for the size of the wheels. It also ends if this process
    is killed. A pool of processes would run the user's script again in each of them, and end as a whole when
    the kernel ends one of them.

    Raises:
        InvalidWheelError: A wheel cannot be installed, or exceeds a limit.
        BuildError: The disk is full, or the process ended early.
        Stopped: The result is no longer needed.
    """
    names = ", ".join(path.name for path in wheels)
    job = json.dumps([[*map(str, wheels)], output, bytecode, seconds]).encode() + b"\n"
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            [sys.executable, "-I", "-c", _START, *sys.path],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            with suppress(BrokenPipeError):  # It has ended, as its exit code says.
                process.stdin.write(job)
            ready = select.poll()
            ready.register(process.stdout, select.POLLIN)
            while not ready.poll(_POLL_MILLISECONDS):
                check_wanted()
            line = process.stdout.read()
        except BaseException:
            process.kill()
            raise
        code = process.wait()
        errors.seek(0)
        printed = errors.read()[-_LONGEST_OUTPUT:].decode(errors="replace").strip()
    if code == -signal.SIGXCPU:
        raise InvalidWheelError(
            f"A layer of {names} takes too much time: a module may be made to hang the compiler.",
            hint="Use another version of the package, or report this to its authors.",
        )
    if code != 0 or not line:
        raise BuildError(
            f"The process that writes a layer of {names} ended early (exit code {code})."
            + (f"\n{printed}" if printed else ""),
            hint="If its exit code is -9, the machine may be out of memory."
            if code == -9
            else None,
        )
    kind, found = json.loads(line)
    if kind == "blob":
        return LayerBlob(**found)
    raise (InvalidWheelError if kind == "invalid" else BuildError)(found[0], hint=found[1])


def main() -> None:
    """Do the job on stdin, and print what became of it; end if stdin ends meanwhile."""
    # Ctrl-C on a terminal reaches all processes; the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.simplefilter("ignore")  # Of compiled modules.
    _limit(resource.RLIMIT_DATA, MEMORY)  # macOS does not enforce it.
    gc.disable()  # It takes a tenth of the time of compiling, which makes no cycles.
    job = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    print(json.dumps(_done(*job)), flush=True)  # noqa: T201 - the parent reads it


def _end_with_parent() -> None:
    os.read(0, 1)
    os._exit(1)


def _limit(kind: int, amount: int) -> None:
    """Lower the limit of a resource of this process, whatever a wheel says about itself."""
    _, most = resource.getrlimit(kind)
    resource.setrlimit(
        kind, (amount if most == resource.RLIM_INFINITY else min(amount, most), most)
    )


def _done(wheels: Sequence[str], output: str, bytecode: bool, seconds: float) -> tuple[str, Any]:
    """Write a layer; return `blob` with its digests, or the kind of the error with its message and hint."""
    try:
        paths = [Path(path) for path in wheels]
        size = sum(path.stat().st_size for path in paths)
        # The kernel ends this process with SIGXCPU; nothing else ends the compiler.
        allowed = seconds + min(size / _RATE, _MOST_SECONDS)
        _limit(resource.RLIMIT_CPU, ceil(process_time() + allowed))
        with Path(output).open("r+b") as stream:
            return "blob", asdict(write_layer(paths, stream, bytecode=bytecode))
    except InvalidWheelError as error:
        return "invalid", (error.message, error.hint)
    except MemoryError:
        names = ", ".join(Path(path).name for path in wheels)
        return "invalid", (
            f"A layer of {names} cannot be written with {MEMORY >> 20} MB of memory.",
            "One of these files may be damaged or hostile. Use another version.",
        )
    except OSError as error:
        why = f"{error.strerror or error} ({error.filename or output})"
        return "failed", (
            f"A layer could not be written: {why}.",
            "If the disk is full, make room on it, or move Kinetic's home with KINETIC_HOME.",
        )
