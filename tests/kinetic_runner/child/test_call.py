import asyncio
import os
import signal
import subprocess
import sys
import threading
import weakref
from contextlib import suppress
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from typing import Any

import pytest

from kinetic_runner.child.call import (
    AwaitableResultError,
    CallEnd,
    Exited,
    Raised,
    Returned,
    Stopped,
    invoke,
)
from kinetic_runner.child.stop_requests import Stopping, Terminated

pytestmark = pytest.mark.usefixtures("own_signals")


def end_of(function: Any, *args: Any, **kwargs: Any) -> CallEnd:
    return invoke(function, args, kwargs, Stopping())


def test_a_value_is_returned() -> None:
    assert end_of(lambda a, b: a + b, 1, b=2) == Returned(3)


@pytest.mark.parametrize("code", [None, 0, False])
def test_leaving_with_success_returns_none(code: Any) -> None:
    assert end_of(sys.exit, code) == Returned(None)


@pytest.mark.parametrize(
    ("code", "message"),
    [(3, "The function called sys.exit(3)."), ("no data", "The function called sys.exit: no data")],
)
def test_leaving_with_another_code_says_which(code: Any, message: str) -> None:
    end = end_of(sys.exit, code)

    assert isinstance(end, Exited)
    assert end.message == message


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, GeneratorExit, MemoryError])
def test_whatever_is_raised_is_the_answer(kind: type[BaseException]) -> None:
    def fail() -> None:
        raise kind

    end = end_of(fail)

    assert isinstance(end, Raised)
    assert type(end.error) is kind


def test_a_coroutine_is_refused_with_advice(recwarn: pytest.WarningsRecorder) -> None:
    async def main() -> int:
        return 1

    end = end_of(lambda: main())

    assert isinstance(end, Raised)
    assert isinstance(end.error, AwaitableResultError)
    assert "asyncio.run" in str(end.error)
    assert end_of(lambda: asyncio.run(main())) == Returned(1)
    # Only of this coroutine: others' garbage may be collected, and warn, at any time.
    assert not [each for each in recwarn if "advice.<locals>.main" in str(each.message)]


@pytest.fixture
def stopping(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)  # Put back afterwards.
    pipe = os.pipe()
    yield Stopping.install(pipe[0])
    for end in pipe:
        os.close(end)


def stop() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_sigterm_lets_finally_blocks_run_and_does_not_interrupt_them(stopping: Stopping) -> None:
    done = []

    def train() -> None:
        try:
            stop()
            done.append("not reached")
        finally:
            stop()
            done.append("saved")

    end = invoke(train, (), {}, stopping)

    assert isinstance(end, Stopped)
    assert isinstance(end.error, Terminated)
    assert end.error.code == 143
    assert done == ["saved"]


def test_a_stop_that_python_drops_is_raised_again(stopping: Stopping) -> None:
    class Dropping:
        def __del__(self) -> None:
            stop()

    def train() -> None:
        Dropping()
        threading.Event().wait(60)

    assert isinstance(invoke(train, (), {}, stopping), Stopped)


@pytest.mark.parametrize("seconds", [0, 60])
def test_a_stop_waits_for_a_native_module_to_be_loaded_but_not_for_ever(
    stopping: Stopping, seconds: int
) -> None:
    went_on = []
    before, threads = len(sys._current_frames()), []

    class Spec:
        @property
        def name(self) -> str:  # Native code asks for it.
            stop()
            went_on.append(True)
            threading.Event().wait(seconds)
            raise ImportError

    def train() -> None:
        try:
            with suppress(ImportError):
                ExtensionFileLoader("native", "native.so").create_module(Spec())  # type: ignore[arg-type]
        finally:
            threads.append(len(sys._current_frames()))
        threading.Event().wait(60)

    assert isinstance(invoke(train, (), {}, stopping), Stopped)
    assert went_on
    assert threads[0] <= before + 1


def test_an_exception_made_of_the_signal_is_still_a_stop(stopping: Stopping) -> None:
    def train() -> None:
        try:
            stop()
        except BaseException as error:
            raise RuntimeError("interrupted") from error

    assert isinstance(invoke(train, (), {}, stopping), Stopped)


def test_a_function_that_finishes_within_the_grace_keeps_its_value(stopping: Stopping) -> None:
    def train() -> str:
        try:
            stop()
        except SystemExit:
            return "best so far"
        return "?"

    assert invoke(train, (), {}, stopping) == Returned("best so far")


@pytest.mark.parametrize(
    ("function", "end"), [("returns", "Returned value"), ("fails", "Raised division by zero")]
)
def test_a_stop_that_comes_at_any_moment_after_the_end_changes_nothing(
    function: str, end: str
) -> None:
    script = Path(__file__).parent / "projects" / "stopped_at_every_line.py"
    command = [sys.executable, str(script), function]

    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (set(done.stdout.splitlines()), done.stderr) == ({end}, "")
    assert done.stdout.count("\n") > 5


def test_a_handler_of_the_users_wins(stopping: Stopping) -> None:
    seen = []

    def train() -> str:
        signal.signal(signal.SIGTERM, lambda *_: seen.append("mine"))
        stop()
        return "done"

    assert invoke(train, (), {}, stopping) == Returned("done")
    assert seen == ["mine"]
    assert not stopping.came_late


def test_a_stop_that_is_held_back_until_the_end_was_not_late(stopping: Stopping) -> None:
    def train() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        signal.raise_signal(signal.SIGTERM)  # For this thread: others might take it at once.

    try:
        assert invoke(train, (), {}, stopping) == Returned(None)
        assert not stopping.came_late
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])


def test_what_a_function_held_when_it_failed_goes_with_its_end(stopping: Stopping) -> None:
    held = []

    def train() -> None:
        mine = {1}  # A set can be referred to weakly.
        held.append(weakref.ref(mine))
        raise ValueError

    end = invoke(train, (), {}, stopping)
    del end

    assert held[0]() is None


def test_after_the_call_a_signal_interrupts_nothing(stopping: Stopping) -> None:
    stopping.only_record()
    stop()

    assert stopping.stop_requested


def test_a_swallowed_stop_is_raised_again_until_the_call_is_over(stopping: Stopping) -> None:
    with suppress(Terminated):
        stop()

    with pytest.raises(Terminated):
        stopping.check()
    stopping.only_record()
    stopping.check()


POOLS = """
import multiprocessing, os, time
from kinetic_runner.child.stop_requests import Stopping

os.register_at_fork(after_in_child=lambda: time.sleep(60))  # Python swallows what is raised there.
Stopping.install()
pool = multiprocessing.get_context("fork").Pool(4)
pool.terminate()
pool.join()
"""

FORKED = """
import os, signal, sys
from kinetic_runner.child.stop_requests import Stopping

stopping = Stopping.install()
child = os.fork()
if not child:
    if "reports" in sys.argv:
        stopping.only_record()
    os.kill(os.getpid(), signal.SIGTERM)
    os._exit(0)
assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGTERM
os.kill(os.getpid(), signal.SIGTERM)
"""


def test_workers_that_are_told_to_end_while_they_are_made_do_end() -> None:
    subprocess.run([sys.executable, "-c", POOLS], check=True)


@pytest.mark.parametrize("says", ["returns", "reports"])
def test_a_forked_process_dies_of_sigterm_as_everywhere(says: str) -> None:
    done = subprocess.run([sys.executable, "-c", FORKED, says], check=False)

    assert done.returncode == 143
