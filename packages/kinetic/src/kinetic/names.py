"""Names of jobs: readable ids, and shorter names for Kubernetes."""

from __future__ import annotations

import re
from datetime import datetime

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
