from __future__ import annotations

import threading
from functools import partial

import pytest

from kinetic.parallel import Crew, Stopped, map_at_once
from kinetic_payload.progress import Reports, silent
from kinetic_payload.threads import pause, stoppable

LONG = 60.0


def test_one_worker_makes_calls_in_place_in_order() -> None:
    made: list[object] = []

    def call(item: int) -> int:
        made.append((item, threading.current_thread()))
        return -item

    assert map_at_once(call, [1, 2, 3], workers=1) == [-1, -2, -3]
    with Crew(1) as crew:
        assert crew.start(lambda: call(4)).done
    assert made == [(item, threading.current_thread()) for item in (1, 2, 3, 4)]


def test_calls_are_under_way_together_and_no_more_than_there_are_workers() -> None:
    met, now, most = threading.Barrier(3), [], []

    def call(item: int) -> int:
        now.append(item)
        most.append(len(now))
        met.wait(LONG)  # Three are here, or nobody goes on.
        now.remove(item)
        return -item

    assert map_at_once(call, range(9), workers=3) == [-item for item in range(9)]
    assert max(most) == 3


def test_the_first_failure_is_the_one_that_is_told_and_begins_nothing_more() -> None:
    begun = []

    def call(item: int) -> None:
        begun.append(item)
        if item == 1:
            raise ValueError(item)
        pause(LONG)  # Until somebody failed.

    with pytest.raises(ValueError, match="1"):
        map_at_once(call, range(100), workers=2)
    assert sorted(begun) == [0, 1]


def test_a_failure_beside_stops_what_the_block_does_and_is_what_the_block_raises() -> None:
    failed = threading.Event()

    def fail() -> None:
        failed.set()
        raise OSError("No permission.")

    def block() -> None:
        with Crew(2) as crew:
            crew.start(fail)
            failed.wait(LONG)
            with crew.counting(silent)("uploading", None) as advance:
                while True:
                    advance(1)

    with pytest.raises(OSError, match="No permission"):
        block()


def test_a_failure_beside_ends_the_wait_for_what_would_take_long() -> None:
    never = threading.Event()

    def fail() -> None:
        raise OSError("No permission.")

    def block() -> None:
        with Crew(2, patience=0) as crew:
            long = crew.start(lambda: never.wait(LONG))
            crew.start(fail)
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
        map_at_once(call, [1, 2], workers=2)
    assert ended.wait(LONG)


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_a_block_that_ends_badly_stops_the_calls_it_began(error: type[BaseException]) -> None:
    ends: list[BaseException] = []
    going = threading.Event()

    def upload(reports: Reports) -> None:
        try:
            with reports("uploading", 100) as advance:
                while True:
                    advance(1)
                    going.set()
        except Stopped as stop:
            ends.append(stop)
            raise

    def block() -> None:
        with Crew(2, patience=LONG) as crew:
            crew.start(partial(upload, crew.counting(silent)))
            going.wait(LONG)
            raise error

    with pytest.raises(error):
        block()
    assert len(ends) == 1
