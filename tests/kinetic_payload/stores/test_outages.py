"""Outages: one limit for many calls and threads, and what is reported of it."""

from __future__ import annotations

import threading

from kinetic_payload.stores.outages import OutageLimit, current_limit, limited, limited_look
from kinetic_payload.threads import parallel_map


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_time_is_counted_from_the_first_failure_since_something_worked() -> None:
    clock = Clock()
    limit = OutageLimit(60, clock=clock)
    clock.now = 100
    assert (limit.left, limit.reached) == (60, False)

    limit.failed(95, OSError())
    limit.failed(99, OSError())
    clock.now = 154
    assert (limit.left, limit.reached) == (1, False)
    assert limit.at_most(40) == 1
    assert limit.at_most(0.1) == 0.1
    clock.now = 155
    assert limit.reached
    assert limit.at_most(40) == 0.5, "what is tried all the same is not hopeless"

    limit.worked()
    assert (limit.left, limit.reached) == (60, False)


def test_an_attempt_that_hangs_is_reported_once_and_one_that_moves_is_not() -> None:
    clock, reports, moved = Clock(), list[str](), [0]
    limit = OutageLimit(60, report=reports.append, clock=clock)
    with limit.attempt("gs://moving", lambda: moved[0]):
        for now in range(1, 20):
            clock.now, moved[0] = now, now
            limit.look()
    assert reports == []

    with limit.attempt("gs://stuck", lambda: 0):
        for now in (21.9, 22, 25):
            clock.now = now
            limit.look()
        assert reports == ["gs://stuck has not responded for 3 s. Waiting for up to 60 s."]


def test_a_failure_is_reported_after_a_while_unless_a_request_succeeds_before() -> None:
    clock, reports = Clock(), list[str]()
    limit = OutageLimit(60, report=reports.append, clock=clock)
    for began in (0, 10):
        limit.failed(began, OSError())
        limit.explain(f"from {began}")
        clock.now = began + 2.9
        limit.look()
        assert reports == []
        if began == 0:
            limit.worked()

    clock.now = 13
    limit.look()
    limit.look()
    assert reports == ["from 10"]


def test_the_limit_of_an_operation_is_that_of_its_threads_and_of_no_others() -> None:
    limit, seen = OutageLimit(1), list[object]()

    with limited(limit):
        parallel_map(lambda _: seen.append(current_limit()), range(4), threads=2)
        with limited_look(10, print):
            seen.append(current_limit())
        other = threading.Thread(target=lambda: seen.append(current_limit()))
        other.start()
        other.join()

    assert seen == [limit] * 5 + [None]
    assert current_limit() is None
    with limited_look(10, print):
        found = current_limit()
    assert found is not None
    assert found.seconds == 10


def test_a_hanging_attempt_is_reported_while_it_hangs() -> None:
    reported = threading.Event()
    limit = OutageLimit(60, report=lambda _: reported.set(), quiet=0)

    with limited(limit), limit.attempt("gs://stuck", lambda: 0):
        assert reported.wait(60)
