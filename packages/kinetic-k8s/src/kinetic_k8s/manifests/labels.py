"""Labels by which the objects of a job are found."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from kinetic_payload.errors import InvalidRequestError

APP: Final = "app"
APP_VALUE: Final = "kinetic"
PATHWAYS_VALUE: Final = "kinetic-pathways"
"""The value of `app` on everything that belongs to a job under Pathways."""
PREFIX: Final = "kinetic.dev/"
"""The prefix of all labels and annotations of Kinetic, except `app`."""
JOB_ID: Final = f"{PREFIX}job-id"
ACCELERATOR: Final = f"{PREFIX}accelerator"
ROLE: Final = f"{PREFIX}role"
"""What a pod does for its job: `host` runs the function; a component of Pathways has its own name."""
HOST_ROLE: Final = "host"
HELD: Final = f"{PREFIX}held"
"""Annotation of a workload that was created suspended, and that its submit resumes at the end."""
JOBSET_NAME: Final = "jobset.sigs.k8s.io/jobset-name"
"""The label of a pod with the name of its JobSet."""
NODE_POOL: Final = "cloud.google.com/gke-nodepool"
"""The label of nodes with the name of their node pool, which is one slice if it has several hosts."""

_RESERVED: Final = re.compile(
    r"app|job-name|controller-uid"
    r"|(?:[^/]*\.)?(?:kinetic\.dev|batch\.kubernetes\.io"
    r"|(?:jobset|leaderworkerset)\.(?:sigs\.k8s|x-k8s)\.io)/.*"
)
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_DOMAIN: Final = re.compile(
    r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*"
)
_LONGEST_DOMAIN: Final = 253


def standard_labels(job_id: str, accelerator: str, app: str = APP_VALUE) -> dict[str, str]:
    """Return the labels of everything that belongs to one job; *accelerator* is its slug."""
    return {APP: app, JOB_ID: job_id, ACCELERATOR: accelerator}


def of_job(job_id: str) -> str:
    """Return the selector of the objects of one job."""
    return f"{JOB_ID}={job_id}"


def of_jobs(job_ids: tuple[str, ...]) -> str:
    """Return the selector of the objects of these jobs, or of all jobs if *job_ids* is empty."""
    if not job_ids:
        return f"{APP} in ({APP_VALUE},{PATHWAYS_VALUE})"
    return of_job(job_ids[0]) if len(job_ids) == 1 else f"{JOB_ID} in ({','.join(job_ids)})"


def is_label_value(text: str) -> bool:
    """Return whether *text* can be the value of a label."""
    return text == "" or _NAME.fullmatch(text) is not None


def is_reserved(key: str) -> bool:
    """Return whether Kinetic or a controller of Kubernetes sets the label or annotation *key*."""
    return _RESERVED.fullmatch(key) is not None


def is_label_key(text: str) -> bool:
    """Return whether *text* can be the key of a label or an annotation."""
    domain, slash, name = text.rpartition("/")
    if slash and (len(domain) > _LONGEST_DOMAIN or not _DOMAIN.fullmatch(domain)):
        return False
    return _NAME.fullmatch(name) is not None


def check_labels(labels: Mapping[str, str]) -> None:
    """Raise unless the user's *labels* can be added to Kinetic's own.

    Raises:
        InvalidRequestError: A key or value is outside Kubernetes' grammar, or the key is reserved.
    """
    for key, value in labels.items():
        if not isinstance(key, str) or not is_label_key(key):
            raise InvalidRequestError(
                f"{key!r} cannot be the key of a label.",
                hint="Use at most 63 letters, digits, '-', '_' and '.', such as 'team'; begin and end "
                "with a letter or digit. A DNS name and '/' may precede them.",
            )
        if is_reserved(key):
            raise InvalidRequestError(
                f"The label {key!r} is reserved for Kinetic and Kubernetes.",
                hint="Use another key, such as 'team'.",
            )
        if not isinstance(value, str) or not is_label_value(value):
            raise InvalidRequestError(
                f"{value!r} cannot be the value of the label {key!r}.",
                hint="Use at most 63 letters, digits, '-', '_' and '.'; begin and end with a letter "
                "or digit.",
            )


def labels_and_annotations(values: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return *values* as labels where they can be labels, and otherwise as annotations.

    Names without a domain get Kinetic's prefix.
    """
    full = {key if "/" in key else f"{PREFIX}{key}": value for key, value in values.items()}
    labels = {key: value for key, value in full.items() if is_label_value(value)}
    return labels, {key: value for key, value in full.items() if key not in labels}
