"""`kinetic batches …` over batches whose inputs a test ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from kinetic.backends.registry import LOCAL
from kinetic.batches.handle import BatchHandle
from kinetic.errors import UnavailableError
from kinetic_cli.app import App
from kinetic_payload.layout import JobObjects
from kinetic_payload.records.batch import GroupManifest
from kinetic_payload.records.encode import encode
from kinetic_payload.records.host_outcome import ErrorInfo
from kinetic_payload.records.outcome import Outcome
from kinetic_payload.stores.folder.store import FolderStore
from kinetic_servers.fakes import FakeServices, a_record, a_report, report, report_value
from kinetic_servers.stub_jobs import NOW, StubApp, a_job, run

GROUP = "grp-00000001"
Batches = Callable[..., Result]


def manifest(total: int, group_id: str = GROUP, **fields: Any) -> GroupManifest:
    usual: dict[str, Any] = {
        "name": "sweep",
        "tags": {"for": "paper"},
        "created_at": "2023-11-14T22:08:20+00:00",
        "accelerator": "cpu",
        "func_name": "train",
        "job": a_record(job_id=group_id),
        "members": f"cpu-train-20231114-220820-{group_id[4:]}",
        "max_concurrent": 2,
    }
    return GroupManifest(group_id=group_id, total_expected=total, **{**usual, **fields})


class FakeBatch:
    """A batch that runs."""

    def __init__(self, total: int, group_id: str = GROUP, **fields: Any) -> None:
        self.services = FakeServices.make()
        job = self.services.job(
            job_id=group_id, func_name="train", created_at="2023-11-14T22:08:20+00:00"
        )
        self.manifest = manifest(total, group_id, job=job, **fields)
        self.services.store.write(JobObjects(group_id).handle, encode(self.manifest))
        self.services.backend.runs(group_id)

    def job_id(self, index: int) -> str:
        return self.manifest.member(index).job_id

    def returns(self, index: int, value: object) -> None:
        report_value(self.services.store, self.job_id(index), value)

    def ends(self, index: int, *, seconds: float, error: ErrorInfo | None = None) -> None:
        """End an input that began 100 s ago, after *seconds*."""
        began = NOW - 100
        found = a_report(
            self.job_id(index),
            succeeded=error is None,
            error=error,
            started_at=began,
            finished_at=began + seconds,
        )
        report(self.services.store, found, report=found)


class BatchApp(App):
    def __init__(self, *batches: FakeBatch) -> None:
        super().__init__(clock=lambda: NOW)
        self.batches = [BatchHandle(each.manifest, each.services) for each in batches]

    def attach_batch(self, group_id: str) -> BatchHandle:
        return next(batch for batch in self.batches if batch.group_id == group_id)

    def list_batches(self) -> list[BatchHandle]:
        return self.batches


@pytest.fixture
def batches(tmp_path: Path) -> Batches:
    """Return what runs `kinetic batches ARGUMENTS` where the given batches exist."""

    def call(*args: str, among: tuple[FakeBatch, ...] = (), app: App | None = None) -> Result:
        return run("batches", *args, home=tmp_path / "home", app=app or BatchApp(*among))

    return call


def error(message: str) -> ErrorInfo:
    return ErrorInfo(type="ValueError", message=message, traceback="Traceback …")


@pytest.fixture
def half_done() -> FakeBatch:
    """A batch in which each state occurs."""
    batch = FakeBatch(8, failed={"4": "TypeError: no"})
    batch.ends(0, seconds=5)
    batch.ends(1, seconds=20)
    for index in (2, 3):
        batch.ends(index, seconds=1, error=error("nan"))
    return batch


def test_list_counts_the_inputs_of_each_batch(batches: Batches, half_done: FakeBatch) -> None:
    broken = FakeBatch(3, "grp-00000002", name=None)
    collected = FakeBatch(2, "grp-00000003")
    app = BatchApp(broken, half_done, collected)
    broken.services.journal.refuse("observe *", UnavailableError("no answer"))
    for index in range(2):
        collected.returns(index, index)
    stop = Outcome(job_id="grp-00000003", status="cancelled")  # When both had ended.
    collected.services.store.write(JobObjects("grp-00000003").outcome, encode(stop))
    BatchHandle(collected.manifest, collected.services).results()

    ran = batches("list", app=app)

    heads, *rows = [line.split() for line in ran.stdout.splitlines()]
    assert heads[:6] == ["BATCH", "ID", "STATUS", "INPUTS", "DONE", "FAILED"]
    assert rows[0][:5] == ["grp-00000002", "-", "3", "0", "0"]
    assert rows[1] == [GROUP, "RUNNING", "8", "2", "3", "5m", "train", "cpu", "fake", "sweep"]
    assert rows[2][1:5] == ["SUCCEEDED", "2", "2", "0"], "its values were collected"
    assert "grp-00000002 is unknown: Batch grp-00000002: no answer" in ran.stderr


def test_list_skips_a_batch_whose_manifest_cannot_be_read(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "home" / "store")
    for number, created in ((2, "2026-01-02"), (3, "2026-01-03")):
        group = f"grp-0000000{number}"
        job = a_record(job_id=group, backend=LOCAL, bucket_name=str(store.location))
        found = manifest(1, group, job=job, created_at=f"{created}T00:00:00+00:00")
        store.write(JobObjects(group).handle, encode(found))
    store.write(JobObjects(GROUP).handle, b"{")
    where = {"home": tmp_path / "home", "environment": {"KINETIC_BACKEND": LOCAL}}

    ran = run("batches", "list", "--json", **where)

    assert [each["group_id"] for each in json.loads(ran.stdout)] == ["grp-00000003", "grp-00000002"]
    assert f"The batch {GROUP} is left out" in ran.stderr
    jobs = run("jobs", "list", "--json", **where)
    assert [each["job_id"] for each in json.loads(jobs.stdout)] == ["grp-00000003", "grp-00000002"]
    assert jobs.stderr.count(f"The batch {GROUP} is left out") == 1


def test_a_batch_is_one_line_among_jobs(tmp_path: Path, half_done: FakeBatch) -> None:
    app = StubApp(a_job(), batches=BatchApp(half_done, FakeBatch(2000, "grp-00000002")).batches)

    ran = run("jobs", "list", home=tmp_path, app=app)

    assert [" ".join(line.split()) for line in ran.stdout.splitlines()[1:]] == [
        "j RUNNING 5m - train v5litepod-4 local",
        f"{GROUP} RUNNING 5m - train × 8 cpu fake",
        "grp-00000002 RUNNING 5m - train × 2,000 cpu fake",
    ]


def test_status_shows_counts_pace_grid_failures_and_the_slowest(
    batches: Batches, half_done: FakeBatch
) -> None:
    lines = batches("status", GROUP, among=(half_done,)).stdout.splitlines()

    shown = "sweep, 2 done, 2 running, 1 pending, 2 failed, 1 not submitted of 8"
    assert f"inputs       {shown}, 0.04/s, about 1m 15s left" in lines
    grid = lines.index("##xxx>>.")
    assert lines[grid + 1] == "x failed, > running, . pending, # done"
    assert [line.split() for line in lines[grid + 3 : grid + 6]] == [
        ["INPUTS", "FIRST", "TYPE", "MESSAGE"],
        ["2", "2", "ValueError", "nan"],
        ["1", "4", "not", "submitted", "TypeError:", "no"],
    ]
    assert lines[grid + 8].split() == ["20.0", half_done.job_id(1)]

    found = json.loads(batches("status", GROUP, "--json", among=(half_done,)).stdout)
    assert found["counts"] == {"SUCCEEDED": 2, "RUNNING": 2, "PENDING": 1, "FAILED": 2}
    assert found["failures"][0] == {"type": "ValueError", "message": "nan", "inputs": [2, 3]}
    assert (found["status"], found["rate"], found["seconds_left"]) == ("RUNNING", 0.04, 75.0)
    assert found["statuses"]["7"] == "PENDING"


def test_status_of_a_large_batch_shows_the_worst_of_each_few_inputs(batches: Batches) -> None:
    batch = FakeBatch(10_000, per_worker=100)
    batch.ends(5001, seconds=1, error=error("nan"))

    lines = batches("status", GROUP, among=(batch,)).stdout.splitlines()

    legend = lines.index("x failed, > running, . pending; each stands for 17 inputs")
    grid = "".join(lines[legend - 10 : legend])
    assert (grid.index("x"), len(grid), grid.count("x")) == (294, 589, 1)


def test_results_prints_values_in_order_and_failures_after_them(batches: Batches) -> None:
    batch = FakeBatch(3, failed={"1": "TypeError: no"})
    batch.returns(2, (1, 2))
    batch.returns(0, "a")

    text = batches("results", GROUP, "--cleanup", among=(batch,))
    documents = batches("results", GROUP, "--json", among=(batch,)).stdout.splitlines()

    assert (text.stdout, text.exit_code) == ("0  'a'\n2  (1, 2)\n", 1)
    assert f"1 of 3 inputs of {GROUP} have no value." in text.stderr
    assert f"kinetic batches status {GROUP}" in text.stderr
    found = [json.loads(line) for line in documents]
    assert [each["input"] for each in found] == [0, 2, 1]
    assert (found[0]["value"], found[2]["error"]["type"]) == ("a", "kinetic.errors.SubmitError")
    (listed,) = json.loads(batches("list", "--json", among=(batch,)).stdout)
    assert (listed["status"], listed["not_submitted"]) == ("FAILED", 1)


@pytest.mark.parametrize("options", [[], ["--cleanup"]])
def test_results_are_kept_unless_they_are_to_be_removed(
    batches: Batches, options: list[str]
) -> None:
    batch = FakeBatch(1)
    batch.returns(0, 5)

    ran = batches("results", GROUP, *options, among=(batch,))

    assert (ran.stdout, ran.exit_code) == ("0  5\n", 0)
    assert ([*batch.services.store.list("groups/")] == []) is bool(options)
    assert ("Removed" if options else "is kept") in ran.stderr


def test_logs_have_the_index_of_their_input(batches: Batches, half_done: FakeBatch) -> None:
    for index in (0, 2):
        name = JobObjects(half_done.job_id(index)).log_chunk(1, 0, 0)
        half_done.services.store.write(name, b"one\n\x10\x02two\n")
    among = (half_done,)

    assert batches("logs", GROUP, "-n", "1", among=among).stderr == "[0] two\n[2] two\n"
    assert batches("logs", GROUP, "--failed", among=among).stdout == "[2] one\n"
    assert batches("logs", GROUP, "0", "--json", among=among).stdout.splitlines() == [
        json.dumps({"input": 0, "attempt": 1, "stream": stream, "text": text})
        for stream, text in (("stdout", "one"), ("stderr", "two"))
    ]
    assert (
        "has no input 8.\nIts inputs are 0 to 7."
        in batches("logs", GROUP, "8", app=BatchApp(half_done)).stderr
    )


def test_a_batch_that_runs_is_removed_only_if_that_is_meant(
    batches: Batches, half_done: FakeBatch
) -> None:
    refused = batches("cleanup", GROUP, among=(half_done,))

    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "3 of 8 inputs have not ended." in refused.stderr
    assert f"kinetic batches cleanup {GROUP} --yes" in refused.stderr

    cancelled = batches("cancel", GROUP, among=(half_done,))
    assert cancelled.stdout == f"Cancelled {GROUP}: 2 SUCCEEDED, 5 FAILED.\n"
    again = batches("cancel", GROUP, among=(half_done,)).stdout
    assert again == f"{GROUP} had ended already: 2 SUCCEEDED, 5 FAILED.\n"
    for command in ("cancel", "resume"):
        facts = json.loads(batches(command, GROUP, "--json", among=(half_done,)).stdout)
        assert (facts["status"], facts["counts"]["FAILED"]) == ("FAILED", 5)
    status = json.loads(batches("status", GROUP, "--json", among=(half_done,)).stdout)
    assert status["message"] == "The batch was cancelled."
    kinds = {each["type"]: each["inputs"] for each in status["failures"]}
    assert kinds["NotLaunchedError"] == [5, 6, 7]

    removed = json.loads(batches("cleanup", GROUP, "--json", among=(half_done,)).stdout)
    assert removed == {"group_id": GROUP, "removed": True}
    assert [*half_done.services.store.list("groups/")] == []


def test_an_id_that_is_unknown_or_of_another_kind_has_a_hint(tmp_path: Path) -> None:
    def message(*args: str) -> str:
        return run(*args, home=tmp_path / "home").stderr

    assert f"There is no batch '{GROUP}'." in message("batches", "status", GROUP)
    assert "kinetic batches list" in message("batches", "status", GROUP)
    assert "is not the id of a batch" in message("batches", "status", a_record().job_id)
    assert f"kinetic batches status {GROUP}" in message("jobs", "status", GROUP)
