"""Run command lines in this process, with stub jobs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import jsonschema
from click.testing import CliRunner, Result

from kinetic.backends.backend import LogLine
from kinetic.errors import JobNotFoundError, ResultUnreadableError
from kinetic.job_status import JobStatus
from kinetic.jobs.handle import JobHandle
from kinetic.jobs.outcome import JobOutcome
from kinetic_cli.app import App
from kinetic_cli.main import cli

if TYPE_CHECKING:
    from kinetic.batches.handle import BatchHandle
    from kinetic.jobs.debugging import DebugSession
    from kinetic.settings.settings import Settings

NOW = 1_700_000_000.0
"""The time of `StubApp`: 2023-11-14, 22:13:20 UTC."""

_CLEAN = ("PROFILE", "PROFILES_FILE", "BACKEND", "PROJECT", "ZONE", "CLUSTER", "NAMESPACE", "STORE")


def run(
    *args: str,
    home: Path,
    app: App | None = None,
    environment: Mapping[str, str | None] | None = None,
) -> Result:
    """Run `kinetic *args*` in this process, with *home* as KINETIC_HOME and no other setting.

    *environment* is added to the variables of this process; one that is None is removed.
    """
    unset = dict.fromkeys((*(f"KINETIC_{name}" for name in _CLEAN), "GOOGLE_CLOUD_PROJECT"))
    ran = CliRunner().invoke(
        cli,
        args,
        obj=app,
        prog_name="kinetic",
        env={**unset, "KINETIC_HOME": str(home), **(environment or {})},
    )
    check_json(args, ran.stdout)
    return ran


def check_json(args: Sequence[str], printed: str) -> None:
    """Make sure that what a command printed because of `--json` is as `docs/cli-json.schema.json` says."""
    if "--json" not in args or not printed.strip():
        return
    schema = json.loads(_SCHEMA.read_text(encoding="utf-8"))
    words = [word for word in args if not word.startswith("-")]
    names = [" ".join(words[at : at + size]) for at in range(len(words)) for size in (2, 1)]
    name = next(name for name in names if name in schema["properties"])
    lines = printed.splitlines()
    many = name in ("jobs logs", "batches logs", "batches results")
    for text in lines if many else [printed]:
        part = {"$defs": schema["$defs"], **schema["properties"][name]}
        jsonschema.validate(json.loads(text), part)


_SCHEMA: Final = Path(__file__).parents[4] / "docs" / "cli-json.schema.json"


@dataclass
class StubJob(JobHandle):
    """A handle with a given status, log and value, which records its calls."""

    state: JobStatus = JobStatus.RUNNING
    reported: JobOutcome | None = None
    lines: Sequence[LogLine] = ()
    value: Any = None
    raises: BaseException | None = None
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def status(self) -> JobStatus:
        if self.raises is not None:
            raise self.raises
        return self.state

    def _status(self, limit: object) -> JobStatus:
        return self.status()

    def outcome(self) -> JobOutcome:
        return self.reported or JobOutcome(self.job_id, self.state, "", None, ())

    def log_lines(
        self, *, follow: bool = False, tail: int | None = None, attempt: Any = None
    ) -> Iterator[LogLine]:
        self.calls.append(("log_lines", {"follow": follow, "tail": tail, "attempt": attempt}))
        yield from self.lines if tail is None else self.lines[max(len(self.lines) - tail, 0) :]
        if self.raises is not None:
            raise self.raises

    def _followed_parts(self, **part: Any) -> Iterator[LogLine]:
        return self.log_lines(follow=True, **part)

    def result(self, *_: Any, **options: Any) -> Any:
        options.pop("on_status_change")(self.state)
        self.calls.append(("result", options))
        if self.raises is not None:
            raise self.raises
        return self.value

    def _collect(self, **options: Any) -> Any:
        """Call `keep` with the pickle of the given value, then return the value."""
        import io

        import cloudpickle

        keep, options["cleanup"] = options.pop("keep"), False
        if self.raises is None or isinstance(self.raises, ResultUnreadableError):
            keep(io.BytesIO(cloudpickle.dumps(self.value)))
        return self.result(**options)

    def _open_debug_session(self, **options: Any) -> DebugSession:
        """Return a session whose process ends when it is terminated, or raise the given exception."""
        import subprocess
        import sys

        from kinetic.jobs.debugging import DebugSession

        self.calls.append(("debug", options))
        if self.raises is not None:
            raise self.raises
        return DebugSession(
            subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE),
            {
                "name": "Kinetic job",
                "connect": {"host": "127.0.0.1", "port": options["local_port"]},
                "pathMappings": [{"localRoot": options["working_dir"] or "."}],
            },
        )

    def cancel(self, *_: Any, **options: Any) -> None:
        self.calls.append(("cancel", options))

    def cleanup(self, *_: Any, **options: Any) -> None:
        self.calls.append(("cleanup", options))

    def to_dict(self) -> dict[str, Any]:
        return JobHandle(**{name: getattr(self, name) for name in _FIELDS}).to_dict()


_FIELDS = tuple(JobHandle.__dataclass_fields__)


def a_job(job_id: str = "j", **more: Any) -> StubJob:
    """Return a local job, five minutes old."""
    given: dict[str, Any] = {
        "backend": "local",
        "project": "local",
        "cluster_name": "kinetic-cluster",
        "zone": "us-central1-a",
        "namespace": "default",
        "bucket_name": "/store",
        "k8s_name": "kn-train-abc1234",
        "image_uri": "",
        "accelerator": "v5litepod-4",
        "func_name": "train",
        "display_name": "train",
        "created_at": "2023-11-14T22:08:20+00:00",
    }
    return StubJob(job_id=job_id, **{**given, **more})


class StubApp(App):
    """An `App` with given jobs and batches."""

    def __init__(self, *jobs: StubJob, batches: Sequence[BatchHandle] = ()) -> None:
        super().__init__(clock=lambda: NOW)
        self.jobs = jobs
        self.batches = batches
        self.asked: str | None = None

    def attach(self, job_id: str) -> JobHandle:
        for job in self.jobs:
            if job.job_id == job_id:
                return job
        raise JobNotFoundError(
            f"There is no job {job_id!r}.", hint="To list all jobs: kinetic jobs list"
        )

    def list_all(
        self, settings: Settings, selection: object = None
    ) -> tuple[list[JobHandle], list[BatchHandle]]:
        self.asked = settings.backend.value
        return list(self.jobs), list(self.batches)
