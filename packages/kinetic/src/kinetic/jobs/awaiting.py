"""`await handle`: wait for a job without blocking the event loop."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kinetic.backends.backend import Watch
    from kinetic.jobs.handle import JobHandle


async def result_of(handle: JobHandle) -> Any:
    """Return `handle.result()`, called in a daemon thread.

    If the awaiting task is cancelled, the wait ends; the job continues.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()
    stop = threading.Event()
    watches: list[Watch] = []

    def settle(value: Any, error: BaseException | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(value)
        else:
            done.set_exception(error)

    def wait() -> None:
        value: Any = None
        error: BaseException | None = None
        try:
            value = handle._collect(stop=stop, waiting=watches.append)
        except StopIteration as problem:
            # A future cannot hold a StopIteration.
            error = RuntimeError("The job raised StopIteration.")
            error.__cause__ = problem
        except BaseException as problem:  # noqa: BLE001 - raised in the awaiting task
            error = problem
        if not stop.is_set():
            # The loop may have been closed meanwhile.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(settle, value, error)

    threading.Thread(target=wait, daemon=True, name=f"kinetic-await-{handle.job_id}").start()
    try:
        return await done
    finally:
        stop.set()
        for watch in watches:
            watch.wake()
