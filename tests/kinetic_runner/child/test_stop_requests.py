"""Stops that arrive although native code has taken the signals: XLA does so for the hosts of a slice."""

import os
import signal

import pytest

from kinetic_payload.lifeline import STOP

INSTALL = """
from kinetic_runner.child.stop_requests import Stopping
stopping = Stopping.install(task.stop_fd, task.stop_file)
"""
TAKEN = """
import ctypes
libc = ctypes.CDLL(None)
nothing = ctypes.cast(libc.abs, ctypes.c_void_p)
{before}
for number in {numbers}:
    libc.signal(int(number), nothing)
if signal.SIGURG in {numbers}:  # Then it is known, as it is of JAX.
    tell({{"sigterm": "native"}})
    stopping.requests.watch()
tell({{"phase": "call"}})
open({mark!r}, "w").write(".")
try:
    time.sleep(600)
finally:
    print("tidied up", flush=True)
"""
ONE = "[signal.SIGTERM]"
BOTH = "[signal.SIGTERM, signal.SIGURG]"
GRACE = ("--grace", "100000")


def taken(runner, numbers: str, before: str = "") -> str:
    mark = str(runner.folder / "there")
    return INSTALL + TAKEN.format(numbers=numbers, mark=mark, before=before)


@pytest.mark.parametrize("numbers", ["[]", ONE, BOTH])
def test_a_supervisor_stops_a_function_at_once_whatever_native_code_has_taken(runner, numbers):
    read_end, write_end = os.pipe()
    process = runner.start(
        taken(runner, numbers),
        *(*GRACE, "--lifeline", str(read_end)),
        phase="data",
        pass_fds=[read_end],
    )
    runner.wait_for(runner.folder / "there")

    os.write(write_end, STOP)
    process.terminate()
    done = runner.finish(process)
    for end in (read_end, write_end):
        os.close(end)

    assert (done.code, done.outcome["reason"]) == (143, "terminated")
    assert b"tidied up" in done.log


CLOSE = "os.closerange(3, 4096)"
REUSE = CLOSE + "; held = [open('/dev/zero') for _ in range(30)]"
KEEP = "os.fork() or time.sleep(600)\n" + CLOSE  # Another process still has the pipe.


@pytest.mark.parametrize(
    ("numbers", "before"), [(ONE, ""), (BOTH, ""), (ONE, CLOSE), (ONE, REUSE), (ONE, KEEP)]
)
def test_a_time_limit_stops_a_function_whatever_was_done_to_the_pipe(runner, numbers, before):
    watched = f"{before}\nstopping.requests.watch()" if before else ""  # As after `import jax`.
    done = runner.run(taken(runner, numbers, watched), *GRACE, timeout=0.1, phase="data")

    assert done.outcome["reason"] == "timeout"
    assert b"tidied up" in done.log


def test_a_preempted_function_has_most_of_the_grace_and_is_stopped_before_its_end(runner):
    process = runner.start(taken(runner, BOTH), "--grace", "6", phase="data")
    runner.wait_for(runner.folder / "there")

    process.terminate()
    done = runner.finish(process)

    assert (done.code, done.outcome["reason"]) == (143, "terminated")
    assert "killed" not in done.outcome["message"]
    assert b"tidied up" in done.log


def test_a_handler_of_the_users_is_called_in_place_of_ours(runner):
    handler = "signal.signal(signal.SIGTERM, lambda *_: print('saved', flush=True) or os._exit(0))"
    done = runner.run(taken(runner, BOTH, handler), *GRACE, timeout=0.1, phase="data")

    assert done.log.endswith(b"saved\n")


def test_where_native_code_has_taken_nothing_a_handler_of_the_users_is_called_once(runner):
    body = """
signal.signal(signal.SIGTERM, lambda *_: print("saving", flush=True))
tell({"phase": "call"})
time.sleep(600)
"""
    done = runner.run(INSTALL + body, "--grace", "1", timeout=0.1, phase="data")

    assert done.outcome["signal"] == signal.SIGKILL
    assert done.log.count(b"saving") == 1


def test_signals_of_a_forked_process_are_its_own(runner):
    body = """
child = os.fork()
if not child:
    os.kill(os.getpid(), signal.SIGURG)  # A request to the parent does not stop it.
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
ends = set()
for _ in range(100):  # SIGTERM may come before the process has begun.
    child = os.fork()
    if not child:
        time.sleep(600)
        os._exit(7)
    os.kill(child, signal.SIGTERM)
    ends.add(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(ends, signal.pthread_sigmask(signal.SIG_BLOCK, []))
"""
    done = runner.run(INSTALL + body, timeout=60)

    assert done.log == b"7\n{-15} set()\n"
