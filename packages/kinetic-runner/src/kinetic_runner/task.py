"""Messages between the runner's parent and its child: the task, and reports on it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from kinetic_payload.layout import REPORT_SECONDS


@dataclass(frozen=True, kw_only=True)
class Task:
    """One host of one attempt. Travels from parent to child as JSON."""

    store: str
    """Location of the store: `gs://bucket` or a folder."""
    job_id: str
    attempt: int
    host: int
    hosts: int
    payload_digest: str
    context_digest: str | None
    environment_digest: str | None = None
    """The digest of packages to install; None: the image has all that the function needs."""
    workspace: str
    """A folder of this host of this attempt; made if missing."""
    report_file: str = "/dev/null"
    """A file for reports, if the pipe for them is closed."""
    linger: float = 10.0
    """Seconds that threads and exit handlers may take after the outcome is reported."""
    keep_inputs: bool = False
    """Whether payload and project archive stay in the workspace, for another attempt."""
    stop_fd: int | None = None
    """The read end of the pipe through which a stop is requested."""
    stop_file: str = ""
    """A file that exists once a stop is requested, in case user code has closed the pipe."""
    hold: bool = False
    """Whether the coordinator of a slice, if it fails, stays until its parent ends it after the other hosts."""
    debug_port: int | None = None
    pending_uploads: str | None = None
    """A folder that outlives the job, to which the value may be written for the parent to store."""
    report_seconds: float = REPORT_SECONDS
    """How many seconds to retry storing the value."""
    new_pod_seconds: float = 0.0
    """For how many seconds more to retry while the store rejects this pod's credentials."""
    signed: bool = False
    """Whether the job's records are signed. If so, an object that already has the value's name is replaced."""
    private_mounts: bool = False
    """Whether volumes are mounted in a namespace of the child's own, not in the machine's file system."""

    started_at: float | None = None
    """When a child that was started again after the installation of packages was started first; None: it is new."""
    install_seconds: float = 0.0
    """How long that installation took."""

    def encode(self) -> str:
        """Return the task as one line of JSON."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def decode(cls, text: str) -> Task:
        """Rebuild a task from `encode`."""
        values: dict[str, Any] = json.loads(text)
        return cls(**values)


# Messages from child to parent are lines of JSON on the report pipe:
#   {"phase": "extract"}                a phase begins (the parent starts the timeout at "call")
#   {"undisturbed": true}               the function ended before a stop could reach it
#   {"sigterm": "native"}               native code handles SIGTERM: stop requests replace it
#   {"devices": "tpu:4"}                what JAX found, when user code has initialised it
#   {"parting": "together" | "last"}    all work is done; the process only waits for the other hosts
#   {"warning": "…"}                    something the user should read; the parent logs it
#   {"outcome": {…HostOutcome…}}        the last message; the child's output is flushed before it
