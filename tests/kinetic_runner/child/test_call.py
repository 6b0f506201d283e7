import asyncio
import os
import signal
import subprocess
import sys
import threading
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


@pytest.mark.parametrize("code", [None, 0, False])
def test_a_function_that_returns_or_leaves_with_success_has_a_value(code: Any) -> None:
    assert end_of(lambda a, b: a + b, 1, b=2) == Returned(3)
    assert end_of(sys.exit, code) == Returned(None)


@pytest.mark.parametrize(
    ("code", "message"),
    [(3, "The function called sys.exit(3)."), ("no data", "The function called sys.exit: no data")],
)
def test_leaving_with_another_code_names_the_code(code: Any, message: str) -> None:
    end = end_of(sys.exit, code)

    assert isinstance(end, Exited)
    assert end.message == message


def test_a_coroutine_is_refused_with_advice(recwarn: pytest.WarningsRecorder) -> None:
    async def main() -> int:
        return 1

    end = end_of(lambda: main())

    assert isinstance(end, Raised)
    assert isinstance(end.error, AwaitableResultError)
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
    steps = []
    before, threads = len(sys._current_frames()), []

    class Spec:
        @property
        def name(self) -> str:  # Native code asks for it.
            stop()
            steps.append("went on")
            threading.Event().wait(seconds)
            steps.append("loaded")
            raise ImportError

    def train() -> None:
        try:
            with suppress(ImportError):
                ExtensionFileLoader("native", "native.so").create_module(Spec())  # type: ignore[arg-type]
        finally:
            threads.append(len(sys._current_frames()))
        threading.Event().wait(60)

    assert isinstance(invoke(train, (), {}, stopping), Stopped)
    assert steps == (["went on"] if seconds else ["went on", "loaded"])
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
def test_a_stop_at_any_moment_after_the_end_changes_nothing(function: str, end: str) -> None:
    script = Path(__file__).parent / "projects" / "stopped_at_every_line.py"
    command = [sys.executable, str(script), function]

    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (set(done.stdout.splitlines()), done.stderr) == ({end}, "")
    assert done.stdout.count("\n") > 5


def test_a_handler_of_the_users_is_called_instead(stopping: Stopping) -> None:
    seen = []

    def train() -> str:
        signal.signal(signal.SIGTERM, lambda *_: seen.append("mine"))
        stop()
        return "done"

    assert invoke(train, (), {}, stopping) == Returned("done")
    assert seen == ["mine"]
    assert not stopping.came_late


def test_a_stop_that_user_code_blocks_until_the_end_did_not_come_late(stopping: Stopping) -> None:
    def train() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        signal.raise_signal(signal.SIGTERM)  # For this thread: others might take it at once.

    try:
        assert invoke(train, (), {}, stopping) == Returned(None)
        assert not stopping.came_late
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])


def test_a_swallowed_stop_is_raised_again_until_the_call_is_over(stopping: Stopping) -> None:
    with suppress(Terminated):
        stop()

    with pytest.raises(Terminated):
        stopping.check()
    stopping.only_record()
    stopping.check()


POOL = """
import multiprocessing, os, signal, time
from kinetic_runner.child.stop_requests import Stopping

def wait():  # Python drops exceptions that are raised here.
    until = time.monotonic() + 60
    while signal.SIGTERM not in signal.sigpending() and time.monotonic() < until:
        time.sleep(0.01)

os.register_at_fork(after_in_child=wait)
Stopping.install()
pool = multiprocessing.get_context("fork").Pool(4)
pool.terminate()
pool.join()
"""


def test_workers_of_a_pool_that_is_terminated_while_they_are_forked_end() -> None:
    subprocess.run([sys.executable, "-c", POOL], check=True)
