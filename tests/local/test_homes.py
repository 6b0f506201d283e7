"""Several homes over one folder: a job is known wherever it is kept, and ended by nobody else."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from kinetic.backends.local.backend import LocalBackend
from kinetic.backends.local.observation import Unreachable, home_of, keeper_of
from kinetic.errors import JobError
from kinetic.home.paths import Home
from kinetic.testing import eventually
from kinetic_payload.layout import JobObjects
from kinetic_payload.processes import marked
from kinetic_payload.records.decode import decode
from kinetic_payload.records.encode import encode
from kinetic_payload.records.job import JobRecord, Keeper
from kinetic_payload.stores.folder.store import FolderStore

from .conftest import unprivileged

SCRIPT = """
import kinetic, os, sys, time

@kinetic.run(accelerator="cpu")
def work(gate):
    print("up", flush=True)
    while not os.path.exists(gate):
        time.sleep(0.02)
    return "value"

if __name__ == "__main__":
    print(work.run_async(sys.argv[1]).job_id)
"""
COLLECT = """
import kinetic, sys
print("waiting", flush=True)
print(kinetic.attach(sys.argv[1]).result())
"""


class Homes:
    """A job that one home keeps, and a second home over the same store that looks at it."""

    def __init__(self, project, folder: Path) -> None:
        self.project = project
        self.first = project.home
        self.second = folder / "second"
        self.store = FolderStore(folder / "shared")
        self.gate = folder / "gate"
        project.write("collect.py", COLLECT)
        self.job_id = project.script(SCRIPT, str(self.gate), **self.sharing(self.first)).strip()
        self.names = JobObjects(self.job_id)
        folder = self.first / "jobs" / self.job_id
        eventually((folder / "state.json").exists)
        eventually(lambda: (folder / "attempt-1" / "host-0.log").read_text() == "up\n")

    def sharing(self, home: Path) -> dict[str, str]:
        return {"KINETIC_STORE": str(self.store.location), "KINETIC_HOME": str(home)}

    def command(
        self, *words: str, home: Path | None = None, before: tuple[str, ...] = ()
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*before, sys.executable, "-m", "kinetic_cli", "jobs", *words],
            env={**self.project.environment, **self.sharing(home or self.second)},
            capture_output=True,
            text=True,
            check=False,
        )

    def status(self, **options: object) -> tuple[str, str]:
        done = self.command("status", self.job_id, "--json", **options)  # type: ignore[arg-type]
        said = json.loads(done.stdout)
        return said["status"], said["message"]

    def written(self) -> bool:
        return self.store.stat(self.names.outcome) is not None

    @property
    def record(self) -> JobRecord:
        return decode(JobRecord, self.store.read(self.names.handle), name=self.names.handle)

    def rewrite(self, change: Callable[[Keeper], Keeper]) -> None:
        """Let the job's record name another keeper."""
        record = self.record
        assert record.keeper is not None
        changed = replace(record, keeper=change(record.keeper))
        self.store.write(self.names.handle, encode(changed))

    def move_to_another_machine(self) -> None:
        self.rewrite(lambda keeper: replace(keeper, machine="gpu-box", boot="another"))

    def result_in_first(self) -> str:
        self.gate.touch()
        done = self.project.run("collect.py", self.job_id, **self.sharing(self.first))
        assert done.returncode == 0, done.stderr
        return done.stdout.split()[-1]

    def collected_in_second(self) -> str:
        """Return what the second home prints that waits for the end of the job."""
        collecting = self.project.start("collect.py", self.job_id, **self.sharing(self.second))
        assert collecting.stdout.readline() == "waiting\n"
        self.gate.touch()
        value, errors = collecting.communicate()
        assert errors == ""
        return value

    def end(self) -> None:
        self.gate.touch()
        eventually(lambda: not marked(f"KINETIC_JOB_ID={self.job_id}"))


@pytest.fixture
def homes(project, tmp_path: Path):
    homes = Homes(project, tmp_path)
    yield homes
    homes.end()


def test_another_home_on_this_machine_follows_collects_and_cleans_up(homes: Homes) -> None:
    listed = json.loads(homes.command("list", "--json").stdout)
    assert [job["status"] for job in listed] == ["RUNNING"]
    assert homes.status()[0] == "RUNNING"
    assert "up" in homes.command("logs", homes.job_id).stdout
    assert not homes.written()

    assert homes.collected_in_second() == "value\n"
    assert not (homes.first / "jobs" / homes.job_id).exists()


def test_another_home_on_this_machine_cancels(homes: Homes) -> None:
    done = homes.command("cancel", homes.job_id)
    assert (done.returncode, done.stdout) == (0, f"Cancelled {homes.job_id}.\n")
    assert not marked(f"KINETIC_JOB_ID={homes.job_id}")
    assert homes.status(home=homes.first)[0] == "FAILED"


def test_a_supervisor_that_died_in_another_home_is_known(homes: Homes) -> None:
    state = json.loads((homes.first / "jobs" / homes.job_id / "state.json").read_text())
    psutil.Process(state["attempts"][0]["pids"][0]).parent().kill()

    def failed() -> str:
        status, why = homes.status()
        return why if status == "FAILED" else ""

    assert "supervisor died" in eventually(failed)


@pytest.mark.parametrize("home", ["first", "second"])
def test_a_job_on_another_machine_is_running_and_only_its_store_is_asked(
    homes: Homes, home: str
) -> None:
    # The first home as well: over a network file system, it has the folder, and no FIFO tells anything.
    homes.move_to_another_machine()
    status, why = homes.status(home=getattr(homes, home))
    assert status == "RUNNING"
    assert f"{homes.first} on gpu-box" in why
    for command in ("cancel", "cleanup"):
        done = homes.command(command, homes.job_id, home=getattr(homes, home))
        assert done.returncode == 1
        assert f"{homes.first} on gpu-box" in done.stderr
        assert f"remove {homes.store.location}/{homes.job_id}" in done.stderr.replace("\n", " ")
    backend = LocalBackend(getattr(homes, home), homes.store)
    with pytest.raises(JobError, match="does not run on this machine"):
        backend.forward(homes.record)
    assert not homes.written()

    assert homes.collected_in_second() == "value\n"
    assert homes.command("logs", homes.job_id).stdout == "up\n"


def test_a_home_that_may_not_be_read_is_left_alone(homes: Homes) -> None:
    less = tuple(unprivileged())
    homes.first.chmod(0)
    try:
        status, why = homes.status(before=less)
        done = homes.command("cancel", homes.job_id, before=less)
    finally:
        homes.first.chmod(0o700)
    assert status == "RUNNING"
    assert str(homes.first) in why
    assert "may not be read" in why
    assert (done.returncode, str(homes.first) in done.stderr) == (1, True)
    assert not homes.written()
    assert homes.result_in_first() == "value"


def test_a_home_that_was_removed_is_said_to_be_and_its_job_can_be_cleaned_up(homes: Homes) -> None:
    gone = homes.first.with_name("gone")
    homes.first.rename(gone)
    shutil.rmtree(gone)
    for make_again in (False, True):
        homes.first.mkdir() if make_again else None
        status, why = homes.status()
        assert status == "FAILED"
        assert f"{homes.first} on this machine" in why
        assert (
            not homes.written()
        )  # Its supervisor lives, as it happens, and may say something else.

    done = homes.command("cleanup", homes.job_id)
    assert done.returncode == 0, done.stderr
    assert json.loads(homes.command("list", "--json").stdout) == []
    eventually(lambda: not marked(f"KINETIC_JOB_ID={homes.job_id}"))


def test_a_home_that_was_moved_still_keeps_its_jobs(homes: Homes, tmp_path: Path) -> None:
    homes.first.rename(tmp_path / "moved")
    homes.first = tmp_path / "moved"
    assert homes.status(home=homes.first)[0] == "RUNNING"
    assert homes.result_in_first() == "value"


JOB = "cpu-f-20260101-000000-abc"


@pytest.mark.parametrize(
    ("keeper", "there", "found"),
    [
        # Restarted since: what is there tells the truth, and what is not there may be elsewhere.
        ({"boot": "before"}, True, "first"),
        ({"boot": "before"}, False, Unreachable.GONE),
        # The machine got another name meanwhile, as laptops do, or a container looks at its host.
        ({"machine": "renamed"}, True, "first"),
        ({"machine": "renamed"}, False, "first"),
        # The same path and name in another container, whose folders are others.
        ({"inode": "1:2"}, False, Unreachable.GONE),
        ({"inode": "1:2", "machine": "container"}, False, Unreachable.AWAY),
        ({"boot": "another", "machine": "another"}, True, Unreachable.AWAY),
        ({"boot": "", "machine": "another"}, True, Unreachable.AWAY),
        ({}, True, "first"),
        ({}, False, "first"),
    ],
)
@pytest.mark.parametrize("asked_in", ["first", "second"])
def test_where_a_job_is_looked_for(
    tmp_path: Path,
    keeper: dict[str, str],
    there: bool,
    found: str | Unreachable,
    asked_in: str,
) -> None:
    first, own = Home(str(tmp_path / "first")), Home(str(tmp_path / asked_in))
    os.makedirs(first.job(JOB).path if there else first.jobs)
    kept = replace(keeper_of(first), **{"boot": "now", **keeper})
    seen = home_of(kept, JOB, own, boot=lambda: "now")
    assert (seen.path if isinstance(seen, Home) else seen) == (
        first.path if found == "first" else found
    )


def test_a_record_of_before_homes_were_named_is_looked_for_at_home(tmp_path: Path) -> None:
    own = Home(str(tmp_path))
    assert home_of(None, JOB, own) is own
