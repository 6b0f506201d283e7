"""Messages between the runner's parent and its child: the task, and reports on it."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from kinetic_payload.frozen import frozen
from kinetic_payload.layout import DEBUG_PORT
from kinetic_payload.records.job import JobRecord
from kinetic_runner.command_line import Arguments


@frozen(kw_only=True)
class Given:
    """The input of a member of a batch, and where its pickle is in the store."""

    index: int
    of: int
    """The number of inputs of the batch."""
    name: str
    start: int
    end: int
    digest: str
    data: list[str]
    """The keys of the `Data` in it."""
    call_data: int
    """How many references of the call belong to every input."""
    output_dir: str
    loaded: dict[str, str]
    """Digests of data of the Hub that a worker of the batch has put into the store, by key."""
    shares: list[str]
    """The keys of data of the Hub that this worker is to put there."""


@frozen(kw_only=True)
class Task:
    """One host of one attempt. Travels from parent to child as JSON."""

    arguments: Arguments
    record: JobRecord
    """The job's record, verified."""
    attempt: int
    host: int
    mark: str = ""
    """Distinguishes the files of this child from those of earlier ones in the workspace."""
    linger: float = 10.0
    """Seconds that threads and exit handlers may take after the outcome is reported."""
    stop_fd: int | None = None
    """The read end of the pipe through which a stop is requested."""
    new_pod_seconds: float = 0.0
    """For how many seconds more to retry while the store rejects this pod's credentials."""
    given: Given | None = None
    """The input, of a member of a batch."""
    signed: bool = False
    """Whether the job's records are signed. If so, an object that already has the value's name is replaced."""

    started_at: float | None = None
    """When a child that was started again after the installation of packages was started first; None: it is new."""
    install_seconds: float = 0.0
    """How long that installation took."""

    @property
    def report_file(self) -> str:
        """A file for reports, if the pipe for them is closed."""
        return f"{self.arguments.workspace}/.report-{self.mark}"

    @property
    def stop_file(self) -> str:
        """A file that exists once a stop is requested, in case user code has closed the pipe."""
        return f"{self.arguments.workspace}/.stop-{self.mark}"

    @property
    def keeps_inputs(self) -> bool:
        """Whether payload and project archive stay in the workspace, which another attempt may have as well."""
        local = self.record.workload is None and self.record.retries > 0
        return local or self.given is not None

    @property
    def private_mounts(self) -> bool:
        """Whether volumes are mounted in a namespace of the child's own: others use this machine's paths, too."""
        return self.record.workload is None

    @property
    def debug_port(self) -> int | None:
        """The port of the debugger, if there is one. 0: any free port; the log names it."""
        if not self.record.debug:
            return None
        return 0 if self.record.workload is None else DEBUG_PORT

    def encode(self) -> str:
        """Return the task as one line of JSON."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def decode(cls, text: str) -> Task:
        """Rebuild a task from `encode`."""
        values: dict[str, Any] = json.loads(text)
        values["arguments"] = Arguments(**values["arguments"])
        values["record"] = JobRecord(**values["record"])
        if values["given"] is not None:
            values["given"] = Given(**values["given"])
        return cls(**values)


# Messages from child to parent are lines of JSON on the report pipe:
#   {"phase": "extract"}                a phase begins (the parent starts the timeout at "call")
#   {"undisturbed": true}               the function ended before a stop could reach it
#   {"sigterm": "native"}               native code handles SIGTERM: stop requests replace it
#   {"devices": "tpu:4"}                what JAX found, when user code has initialised it
#   {"chips": [[0.9, 1e9, 16e9]]}       what each chip of a TPU does: busy, bytes in use, bytes in all
#   {"parting": "together" | "last"}    all work is done; the process only waits for the other hosts
#   {"warning": "…"}                    something the user should read; the parent logs it
#   {"loaded": ["d0", "…digest…"]}      data of the Hub are in the store, for the other workers of the batch
#   {"outcome": {…HostOutcome…}}        the last message; the child's output is flushed before it
