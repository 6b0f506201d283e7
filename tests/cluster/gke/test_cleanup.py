"""Objects that `result` and `cleanup` leave, and that a list of jobs reports."""

from __future__ import annotations

import secrets
import shlex
from typing import Any

import pytest

import kinetic
from kinetic.job_status import JobStatus

JOBS = """
import os, sys
import kinetic
from pods import small

@kinetic.run(
    os.environ["SLICE"], container_image=os.environ["IMAGE"], memory="128Mi",
    capture_env_vars=["JAX_*"], pod_overrides=small(),
)
def function(fails=False):
    print("in the function", flush=True)
    if fails:
        raise ValueError("the words of the function")
    return "value"

if __name__ == "__main__":
    for fails in map(int, sys.argv[1:]):
        print(function.run_async(fails).job_id)
"""


FORGOTTEN = """
import logging, os, sys, time
import kinetic
from kinetic_payload.layout import JobObjects
from kinetic_payload.stores import open_store
from kinetic_payload.stores.store import parse_location

clock = time.time

@kinetic.run("cpu", container_image=os.environ["IMAGE"], memory="400Gi")  # Its pod fits on no node.
def function():
    pass

def list_jobs(after):
    time.time = lambda: clock() + 60 * after
    print("after", after, "minutes:", *(job.job_id for job in kinetic.list_jobs()), flush=True)

if __name__ == "__main__":
    logging.basicConfig(format="%(message)s", stream=sys.stdout)
    job_id = function.run_async().job_id
    print(job_id)
    list_jobs(after=10)
    open_store(parse_location(os.environ["KINETIC_STORE"])).delete(JobObjects(job_id).handle)
    for minutes in (0, 10, 10):
        list_jobs(after=minutes)
"""


def submitted(project: Any, monkeypatch: pytest.MonkeyPatch, *fails: int) -> list[Any]:
    """Submit jobs; return their handles in this process."""
    (project.root / "main.py").write_text(JOBS)
    done = project.run("main.py", *map(str, fails))
    assert done.returncode == 0, done.stderr
    for name, value in project.environment.items():
        monkeypatch.setenv(name, value)
    return [kinetic.attach(job_id) for job_id in done.stdout.split()]


def left(project: Any, job: Any, kind: str) -> tuple[bool, bool]:
    """Return whether the job's workload and its objects are still there."""
    return bool(project.objects(kind, job.job_id)), bool(project.kept(job.job_id))


def test_a_list_omits_a_job_without_a_record_and_warns_once_how_to_delete_it(
    project: Any, wait_for: Any
) -> None:
    # No other job is in this store.
    project.variables["KINETIC_STORE"] = f"gs://jobs/{secrets.token_hex(4)}"
    job_id, recorded, new, warning, *old = project.script(FORGOTTEN).splitlines()
    about, _, command = warning.partition(" Delete its JobSet: kubectl ")
    there = project.objects("jobset", job_id)
    project.bed.kubectl(*shlex.split(command))

    assert recorded == f"after 10 minutes: {job_id}"
    assert (new, old) == ("after 0 minutes:", ["after 10 minutes:"] * 2)
    assert about.startswith(f"Job {job_id} is left out: it has no record in gs://jobs/")
    assert len(there) == 1
    wait_for(lambda: not project.objects("jobset,job,pod,secret", job_id))


def test_a_leaderworkerset_ends_with_its_outcome_and_its_objects_stay_on_request(
    on_slice: Any,
    components: dict[str, str],
    relay: Any,
    monkeypatch: pytest.MonkeyPatch,
    wait_for: Any,
) -> None:
    project, kind = on_slice, "leaderworkerset"
    project.variables |= {
        **components,
        "KINETIC_BACKEND": "",
        "KUBECONFIG": relay.kubeconfig(project.root.parent),
    }
    del project.variables["JAX_PLATFORMS"]
    relay.hidden |= {"jobset.x-k8s.io"}
    # One slice fits, and is held until a client ends the job.
    (ended,) = submitted(project, monkeypatch, 0)
    assert ended.result(cleanup=False) == "value"
    (failed,) = submitted(project, monkeypatch, 1)
    with pytest.raises(ValueError, match="the words of the function"):
        failed.result()
    for job in (ended, failed):
        wait_for(lambda job=job: not project.objects(f"{kind},pod,secret", job.job_id))
    kept = [left(project, job, kind) for job in (ended, failed)]
    statuses = ended.status(), failed.status()
    assert "in the function" in project.kinetic("jobs", "logs", ended.job_id)
    ended.cleanup(k8s=False)
    failed.cleanup()

    assert kept == [(False, True)] * 2
    assert statuses == (JobStatus.SUCCEEDED, JobStatus.FAILED)
    assert project.kept(ended.job_id) == project.kept(failed.job_id) == []
