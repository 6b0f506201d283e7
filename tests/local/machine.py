"""A home, a store and the local backend over both, with jobs whose processes a test kills."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import psutil

from kinetic.backends.local.backend import LocalBackend
from kinetic.testing import eventually
from kinetic_payload.processes import marked
from kinetic_payload.records.job import JobRecord
from kinetic_payload.records.outcome import Outcome
from kinetic_payload.stores.store import Store
from kinetic_servers.launches import a_launch, await_outcome, kill_hard

SLEEP = "import time\nprint('up', flush=True)\ntime.sleep(600)"


class Machine:
    """A home, a store, and the local backend over both."""

    def __init__(self, home: Path, store: Store) -> None:
        self.home = home
        self.store = store
        self.backend = LocalBackend(home, store)
        self.records: list[JobRecord] = []

    def start(
        self, code: str, *, backend: LocalBackend | None = None, **options: object
    ) -> JobRecord:
        launch = a_launch(self.store, textwrap.dedent(code), **options)  # type: ignore[arg-type]
        self.records.append(launch.record)
        (backend or self.backend).start(launch)
        return launch.record

    def folder(self, record: JobRecord) -> Path:
        return self.home / "jobs" / record.job_id

    def state(self, record: JobRecord) -> dict[str, Any]:
        path = self.folder(record) / "state.json"
        return json.loads(path.read_text()) if path.exists() else {}

    def until_up(self, record: JobRecord) -> None:
        next(iter(self.backend.log_lines(record, follow=True)))
        eventually(lambda: self.state(record))

    def supervisor(self, record: JobRecord) -> psutil.Process:
        [runner, *_] = self.state(record)["attempts"][-1]["pids"]
        return psutil.Process(psutil.Process(runner).ppid())

    def outcome(self, record: JobRecord) -> Outcome:
        return await_outcome(self.backend, self.store, record)

    def processes(self, record: JobRecord) -> list[int]:
        return marked(f"KINETIC_JOB_ID={record.job_id}")

    def close(self) -> None:
        """Kill what is left: first the supervisors, for without its bucket one would look for it for an hour."""
        ids = {record.job_id for record in self.records}
        for process in psutil.process_iter(["cmdline"]):
            if ids & set(process.info["cmdline"] or ()):
                kill_hard(process.pid)
        for record in self.records:
            for pid in self.processes(record):
                kill_hard(pid)
