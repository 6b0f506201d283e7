"""Names of jobs: readable ids, what they say of a job, and shorter names for Kubernetes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime

from kinetic_payload.frozen import frozen
from kinetic_payload.layout import MOST_ID


def slug(text: str) -> str:
    """Return *text* as lower-case letters, digits and single dashes; `job` if nothing is left."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "job"


def job_id_of(accelerator: str, function: str, when: datetime, suffix: str) -> str:
    """Return `{accelerator}-{function}-{yyyymmdd}-{hhmmss}-{suffix}`, at most 63 characters.

    The function's part is shortened if necessary.
    """
    head, tail = slug(accelerator), f"{when:%Y%m%d-%H%M%S}-{suffix}"
    room = MOST_ID - len(head) - len(tail) - 2
    middle = slug(function)[: max(room, 0)].strip("-")
    return "-".join(part for part in (head, middle, tail) if part)


@frozen(kw_only=True)
class Selection:
    """Which jobs a list is about, as far as ids tell: then no record of another job is read."""

    since: datetime | None = None
    function: str | None = None
    newest: int | None = None
    """How many, at least; those of the same second as the last one are selected as well."""
    cleaned_up: bool = False
    """Whether jobs that were cleaned up are listed, too."""

    def of(self, job_ids: Iterable[str]) -> set[str]:
        """Return those of *job_ids* that may be wanted."""
        times = {job_id: _submitted_at(job_id) for job_id in job_ids if self._may_be(job_id)}
        # The id has whole seconds.
        first = self.since and f"{self.since.astimezone(UTC):%Y%m%d-%H%M%S}"
        if self.newest is not None and len(times) > self.newest:
            last = sorted(times.values(), reverse=True)[max(self.newest, 1) - 1]
            first = max(first or last, last)
        return {job_id for job_id, when in times.items() if not first or when >= first}

    def _may_be(self, job_id: str) -> bool:
        if self.function is None:
            return True
        name = slug(self.function)
        head = job_id.removesuffix(f"-{_submitted_at(job_id)}-{job_id.rpartition('-')[2]}")
        # An id of nearly the most characters may have a shortened name.
        shortened = len(job_id) >= MOST_ID - 2 and any(
            head.endswith(f"-{name[:size]}") for size in range(1, len(name))
        )
        return head.endswith(f"-{name}") or shortened


def _submitted_at(job_id: str) -> str:
    """Return the time in the id of a single job."""
    return "-".join(job_id.split("-")[-3:-1])


def k8s_name_of(function: str, suffix: str) -> str:
    """Return `kn-{at most 11 characters of the function}-{suffix}`, with a suffix of 7 characters.

    The address of the head of Pathways contains the name twice, `N-pathways-head-0-0.N`, and is the value of
    a label, so the name may have at most 22 characters. Names of pods begin with it, and with a letter.
    """
    return f"kn-{slug(function)[:11].strip('-')}-{suffix}"


def worker_name(k8s_name: str, worker: int) -> str:
    """Return the name of the workload of one worker of a batch, with at most 22 characters as well."""
    head, _, suffix = k8s_name.rpartition("-")
    tail = f"-{suffix}-{worker}"
    return head[: 22 - len(tail)].strip("-") + tail
