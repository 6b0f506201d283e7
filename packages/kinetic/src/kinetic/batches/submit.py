"""Submit a batch: its call once, its inputs in a few objects, one manifest, one resource."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from typing import TYPE_CHECKING, Any

from kinetic.batches.batch import Batch, BatchOptions
from kinetic.batches.handle import BatchHandle
from kinetic.batches.inputs import checker_of
from kinetic.submit.submit import submit

if TYPE_CHECKING:
    from kinetic.jobs.services import Services
    from kinetic.submit.request import JobRequest


def submit_batch(
    request: JobRequest,
    function: Callable[..., Any],
    first: tuple[Any, ...],
    inputs: Iterable[Any],
    options: BatchOptions,
    *,
    services: Services | None = None,
) -> BatchHandle:
    """Start *function* for each of *inputs*, after the arguments *first*; return a handle at once.

    Raises:
        InvalidRequestError: An input is wrong, or the backend runs no such batch.
        KineticError: The batch could not be packaged or started; nothing of it is left.
    """
    check = checker_of(function, first, options.common)
    batch = Batch(request, options, inputs, check)
    with closing(batch.inputs):
        job = submit(batch.request, function, first, options.common, services=services, batch=batch)
        assert batch.manifest is not None
        return BatchHandle(
            batch.manifest, job._services, submission_errors=dict(batch.inputs.failed)
        )
