"""Start-up of a job's runner, for every backend: its bundle, flags and environment."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from kinetic_payload.layout import Env, Flag, JobObjects

if TYPE_CHECKING:
    from kinetic.backends.backend import Launch
    from kinetic.submit.request import JobRequest
    from kinetic_payload.records.job import JobRecord
    from kinetic_payload.stores.store import Location


_IN_JOBS = (
    *("__init__", "_wire", "data", "decorator", "errors", "job_status"),
    *("submit/__init__", "submit/functions"),
)
"""Modules that import only the standard library and other modules of the bundle."""


def modules_in_jobs() -> dict[str, bytes]:
    """Return the modules of `kinetic` that user code can import in a job, by their path in the bundle."""
    folder = Path(__file__).parents[1]
    return {f"light/kinetic/{name}.py": (folder / f"{name}.py").read_bytes() for name in _IN_JOBS}


@cache
def runner_bundle(home: Path, *, bytecode: bool = True) -> bytes:
    """Return the runner as one file, kept in *home* (`KINETIC_HOME`) for later processes.

    Without *bytecode* it fits into a ConfigMap, and starts more slowly. The result is cached: the modules
    that this process has imported do not change.
    """
    from kinetic_runner.bundle import bundle_for

    return bundle_for(home / "cache", modules_in_jobs(), bytecode=bytecode).read_bytes()


def runner_flags(launch: Launch, store: Location, more: Mapping[str, object]) -> list[str]:
    """Return the runner's command line for the job of *launch*, whose objects lie at *store*.

    *more* are further flags of the backend. Flags with the value None are left out.
    """
    record = launch.record
    flags: dict[str, object] = {
        Flag.STORE: store,
        Flag.JOB: record.job_id,
        Flag.PAYLOAD_DIGEST: record.payload_digest,
        Flag.CONTEXT_DIGEST: record.context_digest,
        Flag.HOSTS: record.hosts,
        Flag.TIMEOUT: record.timeout,
        Flag.GRACE: launch.grace,
        **more,
    }
    return [
        word for flag, value in flags.items() if value is not None for word in (flag, str(value))
    ]


def python_options(request: JobRequest) -> tuple[str, ...]:
    """Return options of the interpreter that runs the runner, which passes them on to the user's code."""
    # With frozen modules a debugger cannot stop in the standard library, and debugpy prints a warning.
    return ("-X", "frozen_modules=off") if request.debug else ()


def runner_environment(record: JobRecord, store: Location) -> dict[str, str]:
    """Return the variables that describe the job to user code, the same on each host of each attempt."""
    names = JobObjects(record.job_id)
    return {
        Env.OUTPUT_DIR: record.output_dir or f"{store}/{names.outputs.rstrip('/')}",
        Env.JOB_ID: record.job_id,
        Env.HOST_COUNT: str(record.hosts),
        Env.ACCELERATOR: record.accelerator,
    }
