"""Make the record of a job from its request."""

from __future__ import annotations

import getpass
import os
import re
import sys
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Final

import kinetic
from kinetic_payload.records.job import JobRecord

if TYPE_CHECKING:
    from kinetic.backends.backend import Environment
    from kinetic.submit.request import JobRequest
    from kinetic_payload.stores.store import Location

_LONGEST_LABEL: Final = 63


def record_of(
    request: JobRequest,
    *,
    job_id: str,
    k8s_name: str,
    created_at: datetime,
    store: Location,
    environment: Environment,
    settings: Mapping[str, str],
    payload_digest: str,
    context_digest: str | None,
) -> JobRecord:
    """Return the record of a job; the backend completes it.

    Args:
        request: The job's request. Only the names of captured variables are recorded, not their values.
        job_id: The job's identifier.
        k8s_name: The name of the job's resource on a cluster.
        created_at: The time of the submit, in UTC.
        store: Where the job's objects are.
        environment: The environment in which the function runs.
        settings: Settings of libraries in this process, which the job applies.
        payload_digest: The digest of the call.
        context_digest: The digest of the project; None if no files are shipped.
    """
    target = request.target
    return JobRecord(
        job_id=job_id,
        backend=request.backend,
        project=target.project or "",
        cluster_name=target.cluster,
        zone=target.zone,
        namespace=target.namespace,
        kube_context=target.kube_context,
        bucket_name=str(store),
        k8s_name=k8s_name,
        image_uri=environment.image,
        accelerator=str(request.accelerator),
        func_name=request.function_name,
        display_name=f"{request.function_name} on {request.accelerator}",
        created_at=created_at.isoformat(timespec="milliseconds"),
        debug=request.debug,
        payload_digest=payload_digest,
        context_digest=context_digest,
        environment_digest=environment.packages,
        pathways_tag=environment.pathways_tag,
        # Under Pathways one process controls all devices.
        hosts=request.accelerator.hosts if request.semantics == "gke" else 1,
        retries=request.retries,
        preemptions=request.preemptions,
        spot=request.accelerator.spot,
        timeout=request.timeout,
        output_dir=request.output_dir,
        captured_env=tuple(request.captured_env),
        settings=dict(settings) or None,
        labels=dict(request.labels),
        submitter=submitter(),
        client=f"kinetic {kinetic.__version__}, Python {sys.version.split()[0]}",
    )


@cache
def submitter() -> str:
    """Return the user and the machine of this process as the value of a label: `ada.laptop`."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # In containers, the user often has no name.
        user = str(os.getuid())
    return label_of(user, os.uname().nodename)


def label_of(user: str, machine: str) -> str:
    """Return *user* and *machine*, joined, as the value of a label."""
    allowed = re.sub(r"[^A-Za-z0-9_.-]+", "-", f"{user}.{machine.partition('.')[0]}")
    return allowed.strip("-_.")[:_LONGEST_LABEL].rstrip("-_.")
