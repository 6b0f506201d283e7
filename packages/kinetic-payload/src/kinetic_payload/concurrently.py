"""One function over many items in several threads; the first failure ends all of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def each(work: Callable[[T], object], items: Sequence[T], *, threads: int) -> None:
    """Call *work* with every item, *threads* at a time, and return when all are done.

    Items are begun in their order. After a failure no further one is begun, those under way are
    waited for, and the first failure is raised.
    """
    threads = min(threads, len(items))
    if threads <= 1:
        for item in items:
            work(item)
        return
    from concurrent.futures import ThreadPoolExecutor, as_completed

    todo = iter(items)
    taking = threading.Lock()
    stopped = threading.Event()

    def keep_working() -> None:
        while not stopped.is_set():
            with taking:
                taken = next(((item,) for item in todo), None)
            if taken is None:
                return
            try:
                work(taken[0])
            except BaseException:
                stopped.set()
                raise

    with ThreadPoolExecutor(threads, "kinetic-each") as pool:
        workers = [pool.submit(keep_working) for _ in range(threads)]
        try:
            for worker in as_completed(workers):
                worker.result()
        finally:
            stopped.set()  # Also when it is this thread that was interrupted.
