from __future__ import annotations

import signal
import sys
import threading
import traceback
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any

import pytest

from kinetic_payload.progress import TrackProgress, silent
from kinetic_payload.threads import (
    Executor,
    Future,
    Stopped,
    check_wanted,
    finishing,
    parallel_map,
    pause,
    stoppable,
)

LONG = 60.0


@pytest.mark.parametrize("threads", [1, 4, 100])
def test_every_item_is_worked_on_once(threads: int) -> None:
    done: list[int] = []
    parallel_map(done.append, range(50), threads=threads)
    assert sorted(done) == list(range(50))
    parallel_map(done.append, [], threads=threads)
    assert len(done) == 50


def test_as_many_as_asked_for_run_at_once() -> None:
    together = threading.Barrier(4, timeout=60)
    parallel_map(lambda _: together.wait(), range(8), threads=4)


@pytest.mark.parametrize("threads", [1, 4])
def test_after_a_failure_nothing_more_is_begun(threads: int) -> None:
    begun: list[int] = []

    def work(item: int) -> None:
        begun.append(item)
        if item == 2:
            raise ValueError(item)
        if item > 2:
            with suppress(Stopped):
                pause(3600)  # Until the failure is known.

    with pytest.raises(ValueError, match="2"):
        parallel_map(work, range(1000), threads=threads)
    assert set(begun) <= set(range(3 + threads - 1))


def test_a_failure_stops_what_is_under_way_also_where_that_is_shared_out_again() -> None:
    pausing = threading.Barrier(4, timeout=60)

    def work(item: int) -> None:
        if item == 3:
            pausing.wait()
            raise ValueError(item)
        parallel_map(wait_long, range(item + 1), threads=2)

    def wait_long(_: int) -> None:
        pausing.wait()
        pause(3600)

    with pytest.raises(ValueError, match="3"):
        parallel_map(work, [1, 0, 3], threads=3)


def test_work_is_given_up_when_it_is_not_wanted_any_more() -> None:
    check_wanted()
    with stoppable(lambda: True):
        with pytest.raises(Stopped):
            check_wanted()
        with pytest.raises(Stopped):
            pause(3600)
        with pytest.raises(Stopped):
            parallel_map(lambda _: check_wanted(), range(4), threads=2)
    pause(0.001)


def test_who_is_interrupted_waits_for_all_that_tidy_up() -> None:
    together = threading.Barrier(3, timeout=60)
    tidy = []

    def work(item: int) -> None:
        together.wait()
        try:
            if item == 2:
                threading.Event().wait(0.1)  # By now the threads are waited for.
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            pause(3600)
        finally:
            threading.Event().wait(0.2 if item == 0 else 0)
            tidy.append(item)

    with pytest.raises(KeyboardInterrupt):
        parallel_map(work, range(3), threads=3, grace=60)

    assert sorted(tidy) == [0, 1, 2]


def test_an_interruption_ends_the_waiting_at_whichever_step_it_comes() -> None:
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


def test_one_thread_makes_calls_in_place_in_order() -> None:
    made: list[object] = []

    def call(item: int) -> int:
        made.append((item, threading.current_thread()))
        return -item

    assert parallel_map(call, [1, 2, 3], threads=1) == [-1, -2, -3]
    with Executor(1) as executor:
        assert executor.submit(lambda: call(4)).done
    assert made == [(item, threading.current_thread()) for item in (1, 2, 3, 4)]


def test_calls_are_under_way_together_and_no_more_than_there_are_threads() -> None:
    met, now, most = threading.Barrier(3), [], []

    def call(item: int) -> int:
        now.append(item)
        most.append(len(now))
        met.wait(LONG)  # Three are here, or nobody goes on.
        now.remove(item)
        return -item

    assert parallel_map(call, range(9), threads=3) == [-item for item in range(9)]
    assert max(most) == 3


def test_the_first_failure_is_the_one_that_is_told_and_begins_nothing_more() -> None:
    begun = []

    def call(item: int) -> None:
        begun.append(item)
        if item == 1:
            raise ValueError(item)
        pause(LONG)  # Until somebody failed.

    with pytest.raises(ValueError, match="1"):
        parallel_map(call, range(100), threads=2)
    assert sorted(begun) == [0, 1]


def test_a_failure_beside_stops_what_the_block_does_and_is_what_the_block_raises() -> None:
    failed = threading.Event()

    def fail() -> None:
        failed.set()
        raise OSError("No permission.")

    def block() -> None:
        with Executor(2) as executor:
            executor.submit(fail)
            failed.wait(LONG)
            with executor.checked(silent)("uploading", None) as advance:
                while True:
                    advance(1)

    with pytest.raises(OSError, match="No permission"):
        block()


def test_a_failure_that_stops_the_block_is_shown_without_the_stop() -> None:
    def fail() -> None:
        raise OSError("No permission.")

    def block() -> None:
        with Executor(2) as executor:
            failing = executor.submit(fail)
            with executor.stopped_by(failing):
                pause(LONG)

    with pytest.raises(OSError, match="No permission") as caught:
        block()
    assert "Stopped" not in "".join(traceback.format_exception(caught.value))


def test_a_failure_beside_ends_the_wait_for_what_would_take_long() -> None:
    never = threading.Event()

    def fail() -> None:
        raise OSError("No permission.")

    def block() -> None:
        with Executor(2, grace=0) as executor:
            long = executor.submit(lambda: never.wait(LONG))
            executor.submit(fail)
            long.result()

    with pytest.raises(OSError, match="No permission"):
        block()
    never.set()


def test_calls_are_given_up_where_nobody_wants_any_more_what_their_caller_does() -> None:
    begun, ended = threading.Event(), threading.Event()

    def call(item: int) -> None:
        begun.set()
        try:
            pause(LONG)
        except Stopped:
            ended.set()
            raise

    with pytest.raises(Stopped), stoppable(begun.is_set):
        parallel_map(call, [1, 2], threads=2)
    assert ended.wait(LONG)


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_a_block_that_ends_badly_stops_the_calls_it_began(error: type[BaseException]) -> None:
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


def test_a_future_is_waited_for_until_its_value_is_known_or_nobody_wants_it() -> None:
    future = Future[int]()
    with Executor(2) as executor:
        waiting = executor.submit(future.result)
        future.set_result(3)
        assert waiting.result() == 3
    with stoppable(lambda: True), pytest.raises(Stopped):
        Future[int]().result()


def test_threads_that_were_not_needed_any_more_have_ended() -> None:
    with Executor(3) as executor:
        threads = [executor.submit(threading.current_thread).result() for _ in range(3)]
    for thread in threads:
        thread.join(LONG)
        assert not thread.is_alive()


def test_a_stop_after_the_last_item_throws_no_result_away() -> None:
    together = threading.Barrier(4, timeout=60)
    stopped = threading.Event()

    def work(item: int) -> int:
        together.wait()
        stopped.set()
        return item

    with stoppable(stopped.is_set):
        assert parallel_map(work, range(4), threads=4) == [0, 1, 2, 3]


def test_work_that_was_stopped_may_clean_up_for_a_while() -> None:
    with stoppable(lambda: True):
        with pytest.raises(Stopped):
            check_wanted()
        with finishing(60):
            check_wanted()
        with finishing(-1), pytest.raises(Stopped):
            check_wanted()
        with pytest.raises(Stopped):
            check_wanted()
