from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from kinetic.errors import JobNotFoundError
from kinetic.job_status import JobStatus
from kinetic.jobs.handle import JobHandle, handle_of
from kinetic.testing import eventually
from kinetic_servers.fakes import FakeServices, connected


def a_job(services: FakeServices, job_id: str = "cpu-f-20260101-000000-abcdef0") -> JobHandle:
    return connected(handle_of(services.job(job_id=job_id)), services)


async def awaited(handle: JobHandle) -> Any:
    return await handle


def waiting(job: JobHandle) -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name == f"kinetic-await-{job.job_id}"]


@pytest.mark.parametrize(
    ("error", "kind"),
    # A StopIteration would end the coroutine.
    [
        (ValueError("no"), ValueError),
        (StopIteration("end"), RuntimeError),
        (None, JobNotFoundError),
    ],
)
def test_an_error_is_raised_where_the_job_is_awaited(
    services: FakeServices, error: Exception | None, kind: type[Exception]
) -> None:
    job = a_job(services)
    if error is None:
        job.cleanup()
    else:
        services.backend.raises(job.job_id, error)

    with pytest.raises(kind) as caught:
        asyncio.run(awaited(job))

    if kind is RuntimeError:
        assert isinstance(caught.value.__cause__, StopIteration)


def test_a_cancelled_await_leaves_the_job_alone_and_no_thread(
    services: FakeServices,
) -> None:
    job = a_job(services)
    services.backend.runs(job.job_id)

    async def main() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(awaited(job), 0.05)
        # Asked here: the loop must not have to be closed for the thread to end.
        await asyncio.to_thread(eventually, lambda: not waiting(job))

    asyncio.run(main())

    assert job.status() is JobStatus.RUNNING
    assert services.journal.of("stop *", "remove *", "write *", "delete *") == []
    services.backend.returns(job.job_id, 42)
    assert job.result() == 42


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_closed_loop_is_not_called_back(services: FakeServices) -> None:
    job = a_job(services)
    services.backend.runs(job.job_id)

    async def main() -> None:
        task = asyncio.ensure_future(awaited(job))
        await asyncio.sleep(0.01)
        assert not task.done()

    asyncio.run(main())  # Cancels what is left.
    services.backend.returns(job.job_id, 42)

    assert eventually(lambda: not waiting(job))
    assert services.journal.of("remove *", "delete *") == []
    assert job.result() == 42
