import threading

import pytest

from kinetic_payload.concurrently import each


@pytest.mark.parametrize("threads", [1, 4, 100])
def test_every_item_is_worked_on_once(threads: int) -> None:
    done: list[int] = []
    each(done.append, range(50), threads=threads)
    assert sorted(done) == list(range(50))
    each(done.append, [], threads=threads)
    assert len(done) == 50


def test_as_many_as_asked_for_run_at_once() -> None:
    together = threading.Barrier(4, timeout=10)
    each(lambda _: together.wait(), range(8), threads=4)


@pytest.mark.parametrize("threads", [1, 4])
def test_after_a_failure_nothing_more_is_begun(threads: int) -> None:
    begun: list[int] = []

    def work(item: int) -> None:
        begun.append(item)
        if item == 2:
            raise ValueError(item)
        if item > 2:
            failed.wait(10)

    failed = threading.Event()
    release = threading.Timer(0.2, failed.set)
    release.start()
    with pytest.raises(ValueError, match="2"):
        each(work, range(1000), threads=threads)
    assert len(begun) < 20
