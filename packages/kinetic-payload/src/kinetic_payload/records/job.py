"""What is persisted about a job, as standard-library dataclasses.

The worker writes and reads them with `json`; the client decodes them strictly with `decoding`.
Unknown keys are ignored when read, so that a newer writer does not break an older reader of the
same `version`; a greater `version` is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from kinetic_payload.layout import WIRE_VERSION
from kinetic_payload.records.host_outcome import ErrorInfo as ErrorInfo
from kinetic_payload.records.host_outcome import HostOutcome as HostOutcome
from kinetic_payload.records.host_outcome import Phase as Phase
from kinetic_payload.records.host_outcome import Pickled as Pickled
from kinetic_payload.records.host_outcome import Reason as Reason
from kinetic_payload.records.host_outcome import encode as encode
from kinetic_payload.records.host_outcome import fields_of as fields_of


@dataclass(frozen=True, kw_only=True)
class Claim:
    """Who runs an attempt on a host: `{job}/attempts/{attempt}/host-{n}.claim`."""

    job_id: str
    attempt: int
    host: int
    hostname: str
    pid: int
    claimed_at: float
    signature: str | None = None
    """None where jobs are not signed, and in claims of before there was this field."""
    version: int = WIRE_VERSION


@dataclass(frozen=True, kw_only=True)
class Lease:
    """A sign of life of what keeps a job: `{job}/lease.json`, written again and again."""

    job_id: str
    holder: str
    """Whose it is, for people: the machine, and the folder of its jobs."""
    seconds: float
    """How long it holds, counted from when the store says it was written."""
    version: int = WIRE_VERSION


FinalStatus = Literal["succeeded", "failed", "cancelled"]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How the job ended, written once: `{job}/outcome.json`."""

    job_id: str
    status: FinalStatus
    attempt: int | None = None
    """The attempt that decided, None where none ran."""
    host: int | None = None
    """The host whose outcome counts: the leader, or the lowest that failed."""
    digest: str | None = None
    """SHA-256 of that host's outcome object."""
    other_failed_hosts: tuple[int, ...] = ()
    message: str = ""
    written_by: Literal["runner", "supervisor", "client"] = "runner"
    written_at: float = 0.0
    signature: str | None = None
    version: int = WIRE_VERSION


@dataclass(frozen=True, kw_only=True)
class Keeper:
    """What keeps a local job: a `KINETIC_HOME`, and where that is."""

    home: str
    """Its absolute path."""
    machine: str
    """The host's name."""
    boot: str = ""
    """What identifies this run of the machine's kernel; empty where it is not known."""
    inode: str = ""
    """Device and inode of the home, which tell it from another one at the same path."""


@dataclass(frozen=True, kw_only=True)
class JobRecord:
    """A submitted job: `{job}/handle.json`. The first 17 fields are those of `JobHandle`."""

    job_id: str
    backend: str
    project: str
    cluster_name: str
    zone: str
    namespace: str
    bucket_name: str
    k8s_name: str
    image_uri: str
    accelerator: str
    func_name: str
    display_name: str
    created_at: str
    group_id: str | None = None
    group_kind: str | None = None
    group_index: int | None = None
    debug: bool = False
    payload_digest: str = ""
    context_digest: str | None = None
    hosts: int = 1
    retries: int = 0
    timeout: float | None = None
    output_dir: str | None = None
    captured_env: tuple[str, ...] = ()
    """Names only; values are never persisted."""
    labels: dict[str, str] = field(default_factory=dict)
    client: str = ""
    """Version of `kinetic` and of Python that submitted."""
    kube_context: str | None = None
    """The context of the submitter's kubeconfig; None where the cluster is reached by its name."""
    preemptions: int | None = None
    """How many attempts may be lost to disruptions; None: as many as come."""
    spot: bool | None = None
    workload: str | None = None
    """The form that it has on a cluster, such as `Job`; None on a laptop."""
    keeper: Keeper | None = None
    """Who knows whether a local job runs; None in records of before there was this field."""
    signature: str | None = None
    version: int = WIRE_VERSION


@dataclass(frozen=True, kw_only=True)
class GroupManifest:
    """A batch, written once: the ids of its children are derived from it."""

    group_id: str
    name: str | None = None
    tags: dict[str, str]
    created_at: str
    total_expected: int
    accelerator: str
    func_name: str
    signature: str | None = None
    version: int = WIRE_VERSION


Record = HostOutcome | Claim | Lease | Outcome | JobRecord | GroupManifest
