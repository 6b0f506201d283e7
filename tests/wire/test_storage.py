"""`kinetic storage` over a bucket, with the real command."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import timedelta
from typing import Any

import kinetic
from kinetic.job_status import JobStatus
from kinetic.settings.settings import Settings
from kinetic.storage.prune import PruneOptions, prepare_prune
from kinetic.testing import eventually
from kinetic_payload.layout import JobObjects
from kinetic_payload.records.encode import encode
from kinetic_payload.records.outcome import Outcome
from kinetic_payload.stores import open_store
from kinetic_payload.stores.store import parse_location
from kinetic_servers.fakes import a_record
from kinetic_servers.gke import GkeServer

from .conftest import client_of, ended

JOBS = """
    import kinetic, pathlib, time

    @kinetic.run(accelerator="cpu")
    def read(data, until):
        while until and not pathlib.Path(until).exists():
            time.sleep(0.02)
        return sorted(p.name for p in pathlib.Path(data).iterdir())
"""


def storage(*args: str) -> Any:
    command = [sys.executable, "-m", "kinetic_cli", "storage", *args, "--json"]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_old_objects_go_and_a_running_job_keeps_what_it_needs(desk) -> None:
    jobs = desk.module("jobs", JOBS)
    folders = [desk.write(f"../{name}/{name}.txt", name).parent for name in ("old", "used", "new")]
    old, used, new = (kinetic.Data(str(folder)) for folder in folders)
    go_on = desk.folder / "go on"
    first = ended(jobs.read.run_async(old, ""))
    running = jobs.read.run_async(used, str(go_on))
    eventually(lambda: running.status() is JobStatus.RUNNING)
    desk.server.age("bucket", "team/", timedelta(days=40))
    desk.write("other.txt", "another context")
    second = ended(jobs.read.run_async(new, ""))
    listed = {row["what"]: row for row in storage() if row["place"] == desk.store}
    wanted = {"contexts": 2, "data": 3, "job records": 3}
    assert {what: listed[what]["items"] for what in wanted} == wanted
    # Only Google's library, with a login, reads the rules of a bucket.
    assert {row["expires"] for row in listed.values()} == {None}

    before = desk.server.requests.count(operation="objects.delete")
    planned = storage("prune", "--data", "--jobs", "--older-than", "30d", "--dry-run")
    assert desk.server.requests.count(operation="objects.delete") == before
    pruned = storage("prune", "--data", "--jobs", "--older-than", "30d", "--yes")

    assert planned["removed"] == pruned["removed"]
    assert [row["items"] for row in pruned["removed"]] == [1, 1]
    assert first.status() is JobStatus.NOT_FOUND
    left = [name for name in desk.names() if name.startswith(("data/", "data-markers/"))]
    assert {name.split("/")[1] for name in left if name.startswith("data/")} == {
        name.split("/")[1] for name in left if name.startswith("data-markers/")
    }
    assert len([name for name in left if name.startswith("data-markers/")]) == 2
    go_on.touch()
    assert running.result() == ["used.txt"]
    assert second.result() == ["new.txt"]


def test_a_running_job_with_the_outcome_of_somebody_else_goes_on(desk) -> None:
    jobs = desk.module("jobs", JOBS)
    data, go_on = desk.write("../data/a.txt", "a").parent, desk.folder / "go on"
    job = jobs.read.run_async(kinetic.Data(str(data)), str(go_on))
    eventually(lambda: job.status() is JobStatus.RUNNING)
    outcome = Outcome(
        job_id=job.job_id, status="cancelled", message="", written_by="client", written_at=1.0
    )
    store = open_store(parse_location(desk.store))
    name = JobObjects(job.job_id).outcome
    store.write(name, encode(outcome))
    desk.server.age("bucket", "team/", timedelta(days=1))  # The store's clock is known to a second.
    options = PruneOptions(kinds=["jobs"], older_than=None)

    pruning = prepare_prune(Settings.from_environment(), options)

    assert [removal.items for removal in pruning.apply()] == [0]
    assert "still runs" in pruning.problems[0]
    store.delete(name)
    go_on.touch()
    assert job.result() == ["a.txt"]


def test_a_context_that_a_submit_renews_meanwhile_stays_in_the_bucket(desk) -> None:
    jobs = desk.module("jobs", JOBS)
    data = kinetic.Data(str(desk.write("../data/a.txt", "a").parent))
    jobs.read.run_async(data, "").result()
    desk.server.age("bucket", "team/", timedelta(days=40))
    options = PruneOptions(kinds=["contexts", "data"], older_than=timedelta(days=30))
    pruning = prepare_prune(Settings.from_environment(), options)
    assert [removal.items for removal in pruning.plan] == [1, 1]

    job = jobs.read.run_async(data, "")

    assert [removal.items for removal in pruning.apply()] == [0, 0]
    assert job.result() == ["a.txt"]


def test_jobs_of_a_cluster_that_is_gone_are_removed_from_its_bucket(desk, tmp_path) -> None:
    names, other = (JobObjects(f"cpu-f-20260101-000000-abcdef{n}") for n in range(2))
    store = open_store(parse_location(desk.store))
    place = {"project": "my-project", "cluster_name": "gone", "backend": "gke"}
    for job, namespace in ((names, "default"), (other, "team-b")):
        record = a_record(job_id=job.job_id, namespace=namespace, **place)
        store.write(job.handle, encode(record))
        store.write(job.payload, b"")
        store.write(job.outcome, b"{}")
        store.write(job.log_chunk(1, 0, 0), b"")
    bucket = client_of(desk.server.endpoint).get_bucket("bucket")
    bucket.add_lifecycle_delete_rule(age=90, matches_suffix=["/payload.pkl"])
    bucket.add_lifecycle_delete_rule(age=365, matches_prefix=["team/"])
    bucket.add_lifecycle_delete_rule(age=1, is_live=False)
    bucket.patch()
    with GkeServer(tmp_path) as gke:
        desk.set(**gke.environment, KINETIC_PROJECT="my-project", KINETIC_BACKEND="gke")
        listed = storage("--cluster", "gone")
        choice = ("prune", "--cluster", "gone", "--jobs", "--logs", "--all-ages", "--yes")
        one = storage(*choice, "--namespace", "team-b")
        first = [names.handle, names.outcome, names.payload, names.log_chunk(1, 0, 0)]
        assert desk.names() == first
        both = storage(*choice)

    ages = {row["what"]: (row["items"], row["deleted_after_days"]) for row in listed}
    assert ages == {"job records": (2, 365), "payloads": (2, 90), "logs": (2, 365)}
    items = [[row["items"] for row in found["removed"]] for found in (one, both)]
    assert items == [[1, 1], [1, 1]]
    assert desk.names() == []


def test_this_machine_does_not_mean_its_bucket(desk) -> None:
    command = [sys.executable, "-m", "kinetic_cli", "storage", "prune", "--local", "--all-ages"]
    ran = subprocess.run([*command, "--yes", "--jobs"], capture_output=True, text=True)

    assert (ran.returncode, "others may use it" in ran.stderr) == (1, True)
    assert subprocess.run([*command, "--yes", "--caches"], capture_output=True).returncode == 0
