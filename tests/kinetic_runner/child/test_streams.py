from __future__ import annotations

import subprocess
import sys
import threading

import pytest

LARGE = 4_000_000
WRITE = """
import os, signal, sys
from kinetic_runner.child.streams import write_completely

def streams(): return [(s.name, s.mode, s.encoding, s.errors, s.isatty(), type(s)) for s in (sys.stdout, sys.stderr)]
before = streams()
write_completely()
assert before == streams()
assert sys.stdout is sys.__stdout__ and sys.stderr is sys.__stderr__
text = "x" * int(sys.argv[1])
"""
INTERRUPTED = """
signal.signal(signal.SIGALRM, lambda *_: interruptions.append(1))
interruptions = []
signal.setitimer(signal.ITIMER_REAL, 0.005, 0.005)
{write}
signal.setitimer(signal.ITIMER_REAL, 0)
assert interruptions
"""
WRITES = {
    "print": "print(text)",
    "bytes": "sys.stdout.buffer.write(text.encode() + b'\\n')",
    "numbers": "import array; sys.stdout.buffer.write(array.array('I', [2021161080]) * (len(text) // 4)); print()",
    "error": "print(text, file=sys.stderr)",
}
CODES = {name: INTERRUPTED.format(write=write) for name, write in WRITES.items()}
CODES["not blocking"] = "os.set_blocking(1, False); print(text)"


@pytest.mark.parametrize("code", CODES.values(), ids=CODES)
def test_output_without_buffers_is_complete_however_often_it_is_interrupted(code: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", WRITE + code, str(LARGE)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert process.stdout is not None
    with process, process.stdout as stream:
        data = stream.read1(1)
        threading.Event().wait(0.1)  # The pipe is full; signals come.
        data += stream.read()

    assert process.returncode == 0, data[-2000:]
    assert data == b"x" * LARGE + b"\n"


def test_a_stream_with_a_buffer_keeps_it() -> None:
    code = "import sys; from kinetic_runner.child.streams import write_completely as w; old = sys.stdout; w()"
    subprocess.run([sys.executable, "-I", "-c", f"{code}; assert sys.stdout is old"], check=True)
