from __future__ import annotations

import signal
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import Empty
from time import monotonic
from types import FrameType
from typing import Any

import pytest

from kinetic_payload.progress import TrackProgress, silent
from kinetic_payload.threads import (
    Executor,
    Future,
    Stopped,
    TimedQueue,
    check_wanted,
    finishing,
    parallel_map,
    pause,
    stoppable,
)

LONG = 60.0


def test_one_thread_makes_calls_in_place_in_order() -> None:
    made: list[object] = []

    def call(item: int) -> int:
        made.append((item, threading.current_thread()))
        return -item

    assert parallel_map(call, [1, 2, 3], threads=1) == [-1, -2, -3]
    with Executor(1) as executor:
        assert executor.submit(lambda: call(4)).done
    assert made == [(item, threading.current_thread()) for item in (1, 2, 3, 4)]


def test_as_many_calls_as_threads_run_together_and_results_are_in_order() -> None:
    together, now, most = threading.Barrier(3), [], []

    def call(item: int) -> int:
        now.append(item)
        most.append(len(now))
        together.wait(LONG)  # No call ends before three have started.
        now.remove(item)
        return -item

    assert parallel_map(call, range(9), threads=3) == [-item for item in range(9)]
    assert max(most) == 3
    with Executor(3) as executor:
        threads = [executor.submit(threading.current_thread).result() for _ in range(3)]
    for thread in threads:  # They end with the block.
        thread.join(LONG)
        assert not thread.is_alive()
    assert parallel_map(call, [], threads=3) == []
    assert parallel_map(abs, range(50), threads=100) == [*range(50)]


@pytest.mark.parametrize("threads", [1, 4])
def test_after_a_failure_no_call_starts_and_calls_under_way_stop(threads: int) -> None:
    started: list[int] = []

    def call(item: int) -> None:
        started.append(item)
        if item == 2:
            raise ValueError(item)
        if item > 2:
            with suppress(Stopped):
                pause(3600)

    with pytest.raises(ValueError, match="2"):
        parallel_map(call, range(1000), threads=threads)
    assert set(started) <= set(range(3 + threads - 1))


def test_an_interrupted_caller_waits_for_calls_that_clean_up() -> None:
    together = threading.Barrier(3, timeout=60)
    clean = []

    def work(item: int) -> None:
        together.wait()
        try:
            if item == 2:
                threading.Event().wait(0.1)  # By now the threads are waited for.
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            pause(3600)
        finally:
            threading.Event().wait(0.2 if item == 0 else 0)
            clean.append(item)

    with pytest.raises(KeyboardInterrupt):
        parallel_map(work, range(3), threads=3, grace=60)

    assert sorted(clean) == [0, 1, 2]


def test_an_interruption_at_any_step_ends_the_wait() -> None:
    left = 0

    def interrupt(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        if event == "line" and waits(frame):
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
        return interrupt

    def waits(frame: FrameType | None) -> bool:
        """Tell whether *frame* is of a call of `parallel_map` that has begun its threads."""
        while frame is not None and frame.f_code is not parallel_map.__code__:
            # What an interruption does to a thread that is being made, or to what is collected
            # meanwhile, is Python's affair.
            if frame.f_globals["__name__"] not in ("threading", "kinetic_payload.threads") or (
                frame.f_globals["__name__"] == "threading"
                and frame.f_code.co_name in ("__init__", "start")
            ):
                return False
            frame = frame.f_back
        executor = None if frame is None else frame.f_locals.get("executor")
        return isinstance(executor, Executor) and executor._started == 2

    before = sys.gettrace()
    for step in range(1, 1000):
        left = step
        sys.settrace(interrupt)
        try:
            parallel_map(lambda _: None, range(2), threads=2, grace=0.01)
        except KeyboardInterrupt:
            continue
        finally:
            sys.settrace(before)
        break

    assert 3 < step < 1000


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_a_block_that_raises_stops_its_calls(error: type[BaseException]) -> None:
    ends: list[BaseException] = []
    going = threading.Event()

    def upload(track: TrackProgress) -> None:
        try:
            with track("uploading", 100) as advance:
                while True:
                    advance(1)
                    going.set()
        except Stopped as stop:
            ends.append(stop)
            raise

    def block() -> None:
        with Executor(2, grace=LONG) as executor:
            executor.submit(partial(upload, executor.checked(silent)))
            going.wait(LONG)
            raise error

    with pytest.raises(error):
        block()
    assert len(ends) == 1


def test_a_stop_after_the_last_item_loses_no_result() -> None:
    together = threading.Barrier(4, timeout=60)
    stopped = threading.Event()

    def work(item: int) -> int:
        together.wait()
        stopped.set()
        return item

    with stoppable(stopped.is_set):
        assert parallel_map(work, range(4), threads=4) == [0, 1, 2, 3]


def _by_progress(executor: Executor, failing: Future[None]) -> None:
    with executor.checked(silent)("uploading", None) as advance:
        while True:
            advance(1)


def _by_its_future(executor: Executor, failing: Future[None]) -> None:
    with executor.stopped_by(failing):
        pause(LONG)


def _by_another_result(executor: Executor, failing: Future[None]) -> None:
    executor.submit(partial(threading.Event().wait, LONG)).result()


@pytest.mark.parametrize("block", [_by_progress, _by_its_future, _by_another_result])
def test_a_failed_call_stops_the_block_which_raises_that_failure(
    block: Callable[[Executor, Future[None]], None],
) -> None:
    def fail() -> None:
        raise OSError("No permission.")

    def run() -> None:
        with Executor(2, grace=0) as executor:
            block(executor, executor.submit(fail))

    with pytest.raises(OSError, match="No permission") as caught:
        run()
    shown = "".join(traceback.format_exception(caught.value))
    assert block is not _by_its_future or "Stopped" not in shown


def test_unwanted_work_stops_except_for_clean_up_that_takes_not_too_long() -> None:
    check_wanted()
    with stoppable(lambda: True):
        for work in (check_wanted, partial(pause, LONG), Future[int]().result):
            with pytest.raises(Stopped):
                work()
        with finishing(60):
            check_wanted()
        with finishing(-1), pytest.raises(Stopped):
            check_wanted()
        with pytest.raises(Stopped):
            check_wanted()
    pause(0.001)


def test_calls_stop_once_the_work_of_their_caller_is_unwanted() -> None:
    started, stopped = threading.Event(), threading.Event()

    def call(item: int) -> None:
        started.set()
        try:
            pause(LONG)
        except Stopped:
            stopped.set()
            raise

    with pytest.raises(Stopped), stoppable(started.is_set):
        parallel_map(call, [1, 2], threads=2)
    assert stopped.wait(LONG)


def started(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_items_come_in_order_and_a_wait_for_one_ends_in_time() -> None:
    queue = TimedQueue[int]()
    for number in range(3):
        queue.put(number)

    assert [queue.get(0) for _ in range(3)] == [0, 1, 2]
    started_at = monotonic()
    with pytest.raises(Empty):
        queue.get(0.05)
    assert monotonic() - started_at >= 0.05
    late = started(lambda: queue.put(3))
    assert queue.get(60) == 3
    late.join(60)


def test_every_item_reaches_one_of_many_threads_and_each_wait_ends() -> None:
    queue, taken, more = TimedQueue[int](), list[int](), threading.Event()

    def take() -> None:
        while not more.is_set() or len(taken) < 4000:
            try:
                taken.append(queue.get(0.0003))
            except Empty:
                continue

    def offer(first: int) -> None:
        for number in range(first, first + 2000):
            queue.put(number)

    takers = [started(take) for _ in range(6)]
    for thread in (started(lambda: offer(0)), started(lambda: offer(2000))):
        thread.join(60)
    more.set()
    for thread in takers:
        thread.join(60)

    assert not any(thread.is_alive() for thread in takers)
    assert sorted(taken) == list(range(4000))
