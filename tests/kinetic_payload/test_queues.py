from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty
from time import monotonic

import pytest

from kinetic_payload.queues import TimedQueue


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
