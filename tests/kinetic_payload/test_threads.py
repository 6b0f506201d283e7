import signal
import sys
import threading
from contextlib import suppress
from types import FrameType
from typing import Any

import pytest

from kinetic_payload.threads import Stopped, check_wanted, each, pause, stoppable


@pytest.mark.parametrize("threads", [1, 4, 100])
def test_every_item_is_worked_on_once(threads: int) -> None:
    done: list[int] = []
    each(done.append, range(50), threads=threads)
    assert sorted(done) == list(range(50))
    each(done.append, [], threads=threads)
    assert len(done) == 50


def test_as_many_as_asked_for_run_at_once() -> None:
    together = threading.Barrier(4, timeout=60)
    each(lambda _: together.wait(), range(8), threads=4)


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
        each(work, range(1000), threads=threads)
    assert set(begun) <= set(range(3 + threads - 1))


def test_a_failure_stops_what_is_under_way_also_where_that_is_shared_out_again() -> None:
    pausing = threading.Barrier(4, timeout=60)

    def work(item: int) -> None:
        if item == 3:
            pausing.wait()
            raise ValueError(item)
        each(wait_long, range(item + 1), threads=2)

    def wait_long(_: int) -> None:
        pausing.wait()
        pause(3600)

    with pytest.raises(ValueError, match="3"):
        each(work, [1, 0, 3], threads=3)


def test_work_is_given_up_when_it_is_not_wanted_any_more() -> None:
    check_wanted()
    with stoppable(lambda: True):
        with pytest.raises(Stopped):
            check_wanted()
        with pytest.raises(Stopped):
            pause(3600)
        with pytest.raises(Stopped):
            each(lambda _: check_wanted(), range(4), threads=2)
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
        each(work, range(3), threads=3, patience=60)

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
        """Tell whether *frame* is of a call of `each` that has begun its threads."""
        while frame is not None and frame.f_code is not each.__code__:
            # What an interruption does to a thread that is being made, or to what is collected
            # meanwhile, is Python's affair.
            if frame.f_globals["__name__"] != "threading" or frame.f_code.co_name in (
                "__init__",
                "start",
            ):
                return False
            frame = frame.f_back
        return frame is not None and frame.f_locals.get("begun") == 2

    before = sys.gettrace()
    for step in range(1, 1000):
        left = step
        sys.settrace(interrupt)
        try:
            each(lambda _: None, range(2), threads=2, patience=0.01)
        except KeyboardInterrupt:
            continue
        finally:
            sys.settrace(before)
        break

    assert 3 < step < 1000
