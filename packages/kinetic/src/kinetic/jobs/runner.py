"""Start-up of a job's runner, for every backend: its bundle, command and environment."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from kinetic_payload.layout import Env, Flag, JobObjects

if TYPE_CHECKING:
    from kinetic.backends.backend import Launch
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


def runner_command(
    launch: Launch, store: Location, *, python: str, bundle: str, workspace: str
) -> list[str]:
    """Return the command that starts the runner of *launch*, whose objects lie at *store*.

    The runner reads the job's record for all the rest.
    """
    record = launch.record
    # With frozen modules a debugger cannot stop in the standard library, and debugpy prints a warning. The runner
    # passes its options on to the user's code.
    options = ["-X", "frozen_modules=off"] if record.debug else []
    return [
        *(python, "-u", *options, bundle),
        *(Flag.STORE, str(store), Flag.JOB, record.job_id),
        *(Flag.RECORD_DIGEST, launch.record_digest, Flag.WORKSPACE, workspace),
    ]


def output_dir_of(record: JobRecord, store: Location | str) -> str:
    """Return the folder, or the URI, of the job's outputs."""
    return record.output_dir or f"{store}/{JobObjects(record.job_id).outputs.rstrip('/')}"


def runner_environment(record: JobRecord, store: Location) -> dict[str, str]:
    """Return the variables that describe the job to user code, the same on each host of each attempt."""
    return {
        Env.OUTPUT_DIR: output_dir_of(record, store),
        Env.JOB_ID: record.job_id,
        Env.ACCELERATOR: record.accelerator,
    }
