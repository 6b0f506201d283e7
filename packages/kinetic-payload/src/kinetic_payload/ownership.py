"""Which names in a store are ours: exactly those that `layout` builds.

A folder store may hold other things beside ours. Whatever removes objects by their age, or by the
folder they are in, asks here first.
"""

from __future__ import annotations

import re
from typing import Final

MOST_ID: Final = 63
"""Characters of a job id: it is a label value on Kubernetes."""
_JOB_ID: Final = (
    rf"(?=[a-z0-9-]{{1,{MOST_ID}}}(?:/|\Z))[a-z0-9]+(?:-[a-z0-9]+)*"
    r"-[0-9]{8}-[0-9]{6}-(?:[0-9a-f]{7}|[0-9a-f]{8}-[0-9]+)"
)
"""A job of its own, or a member of a batch."""
_DIGEST: Final = r"[0-9a-f]{64}"
_NUMBER: Final = r"(?:0|[1-9][0-9]{0,8})"
_JOB_OBJECT: Final = (
    r"(?:(?:handle|outcome|lease)\.json|payload\.pkl"
    rf"|attempts/{_NUMBER}/host-{_NUMBER}\.(?:claim|json|pkl))"
)
_CONTEXT: Final = rf"contexts/{_DIGEST}\.zip"
_ENTRY: Final = "|".join(
    (
        rf"{_JOB_ID}(?:/(?:(?:handle|outcome|lease)\.json|payload\.pkl|attempts))?",
        rf"contexts|{_CONTEXT}",
        rf"data(?:/{_DIGEST})?",
        rf"data-markers(?:/{_DIGEST}(?:\.files)?)?",
        rf"(?:logs|outputs)(?:/{_JOB_ID})?",
        r"groups(?:/grp-[0-9a-f]{8})?",
    )
)


def is_job_id(text: str) -> bool:
    """Return whether *text* is the id of a job."""
    return re.fullmatch(_JOB_ID, text) is not None


def number_in(text: str) -> int | None:
    """Return the number that *text*, a part of a name, stands for; None if we write none so."""
    return int(text) if re.fullmatch(_NUMBER, text) else None


def report_of(name: str, job_id: str) -> tuple[int, int] | None:
    """Return the attempt and the host that the object *name* of a job reports on, if it is a report."""
    return _place_in(name, job_id, "json")


def claim_of(name: str, job_id: str) -> tuple[int, int] | None:
    """Return the attempt and the host that the object *name* of a job claims, if it is a claim."""
    return _place_in(name, job_id, "claim")


def _place_in(name: str, job_id: str, kind: str) -> tuple[int, int] | None:
    own, _, rest = name.partition("/")
    found = re.fullmatch(rf"attempts/({_NUMBER})/host-({_NUMBER})\.{kind}", rest)
    return (int(found[1]), int(found[2])) if found and own == job_id else None


def is_digest(text: str) -> bool:
    """Return whether *text* is a digest."""
    return re.fullmatch(_DIGEST, text) is not None


def is_job_object(name: str, job_id: str) -> bool:
    """Return whether *name* is that of an object of the job *job_id*, which clean-up removes."""
    own, slash, rest = name.partition("/")
    return own == job_id and bool(slash) and re.fullmatch(_JOB_OBJECT, rest) is not None


def is_context(name: str) -> bool:
    """Return whether *name* is that of a context."""
    return re.fullmatch(_CONTEXT, name) is not None


def is_entry(path: str) -> bool:
    """Return whether something of ours may lie at *path*, one or two levels below a store's root."""
    return re.fullmatch(_ENTRY, path) is not None
