"""Supervisors over a bucket: deaths and outages."""

import os
import sys
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kinetic.backends.backend import Ending
from kinetic.backends.local.backend import LocalBackend
from kinetic.backends.local.bucket_access import client_folders
from kinetic.backends.local.observation import Unreachable
from kinetic.backends.local.other_homes import OtherHome
from kinetic.errors import (
    JobError,
    ResultTimeoutError,
    SignatureError,
    StoreUnavailableError,
    SubmitError,
)
from kinetic.home.detached import bucket_environment
from kinetic.job_status import JobStatus
from kinetic.jobs.services import Services
from kinetic.jobs.wait import wait_for_outcome
from kinetic.testing import eventually
from kinetic.waiting import Deadline
from kinetic_payload.layout import JobObjects
from kinetic_payload.records.job import JobRecord, Keeper
from kinetic_payload.stores import open_store
from kinetic_payload.stores.gcs import GcsStore, RetryPolicy
from kinetic_payload.stores.store import Location
from kinetic_payload.testing import MemoryStore
from kinetic_servers.gcs import GcsServer
from kinetic_servers.launches import a_launch, job_ids_of

from .machine import SLEEP, Machine


class Machines(Machine):
    """A machine whose jobs are in a bucket."""

    def __init__(self, folder: Path, server: GcsServer) -> None:
        super().__init__(folder / "home", open_store(Location("gs", "jobs")))
        self.server = server
        self.brief = LocalBackend(self.home, self.store, report_seconds=0.1)
        """Gives up at once if the bucket refuses a report."""


@pytest.fixture
def machines(tmp_path: Path, bucket: GcsServer) -> Iterator[Machines]:
    machines = Machines(tmp_path, bucket)
    yield machines
    machines.close()


def test_a_forged_outcome_does_not_show_that_a_job_elsewhere_has_ended() -> None:
    store, keeper = MemoryStore(), Keeper(home="/home", machine="gpu-box", boot="b", inode="1:1")
    record = a_launch(store, SLEEP).record
    store.write(JobObjects(record.job_id).outcome, b"{}")

    def refuse(data: bytes, name: str) -> None:
        raise SignatureError(f"{name} is forged.")

    seen = OtherHome(store, keeper, Unreachable.AWAY, verify=refuse, kill=lambda _: None)
    with pytest.raises(JobError, match="cannot be stopped from here"):
        seen.refuse_to_stop(record)


def test_a_bucket_that_refuses_the_outcome_is_the_reason_of_the_failure(
    machines: Machines,
) -> None:
    record = machines.start(SLEEP, backend=machines.brief)
    machines.until_up(record)
    machines.server.faults.add(method="POST", name=f"{record.job_id}/*", status=403)
    machines.supervisor(record).children()[0].kill()
    seen = eventually(
        lambda: (
            found if (found := machines.backend.observe(record)).ending is Ending.VANISHED else None
        )
    )
    assert seen.status is JobStatus.FAILED
    assert seen.reason.startswith("The job's outcome could not be stored: Could not write")


def test_the_output_of_a_runner_that_could_not_begin_is_the_reason_of_the_failure(
    machines: Machines,
) -> None:
    bundle = (
        b"import sys\n"
        b"print('[kinetic] gs://jobs is a bucket, and google-cloud-storage is not installed here.')\n"
        b"print('Install it.')\n"
        b"sys.exit(2)\n"
    )
    record = machines.start("", bundle=bundle, retries=3)
    outcome = machines.outcome(record)
    assert outcome.status == "failed"
    assert "exit code 2: gs://jobs is a bucket, and google-cloud-storage is not" in outcome.message
    assert outcome.message.endswith("Install it.")


def test_a_job_whose_runners_cannot_be_spawned_has_failed(machines: Machines) -> None:
    # No system takes so much: the runner's command is refused, and the supervisor's is not.
    record = machines.start("pass", hosts=2, environment={"BIG": "x" * (8 << 20)})
    outcome = machines.outcome(record)
    assert (outcome.status, outcome.written_by) == ("failed", "supervisor")
    assert "could not be started" in outcome.message
    eventually(lambda: machines.backend.observe(record).status is JobStatus.FAILED)


def test_an_interpreter_that_cannot_reach_buckets_is_refused_before_it_starts(
    machines: Machines, tmp_path: Path
) -> None:
    venv.create(tmp_path / "bare", symlinks=True)
    python = tmp_path / "bare" / "bin" / "python"
    launch = a_launch(machines.store, SLEEP, interpreter=str(python))
    with pytest.raises(SubmitError, match="no google-cloud-storage") as raised:
        machines.backend.start(launch)
    assert "gs://jobs" in raised.value.message
    assert job_ids_of(machines.backend) == []


def test_a_supervisor_gets_the_variables_that_lead_to_the_bucket_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = {
        "GOOGLE_APPLICATION_CREDENTIALS": "keys/adc.json",
        "CLOUDSDK_CONFIG": "/config",
        "STORAGE_EMULATOR_HOST": "http://127.0.0.1:1",
        "GOOGLE_CLOUD_PROJECT": "",
        "GOOGLE_API_KEY": "secret",
        "KINETIC_STORE": "gs://jobs",
    }
    assert bucket_environment(given) == {
        "GOOGLE_APPLICATION_CREDENTIALS": f"{Path.cwd()}/keys/adc.json",
        "CLOUDSDK_CONFIG": "/config",
        "STORAGE_EMULATOR_HOST": "http://127.0.0.1:1",
    }


def test_the_client_of_buckets_can_be_imported_from_its_folders_alone() -> None:
    import subprocess

    code = (
        "import sys; sys.path += sys.argv[1:]; import google_crc32c, google.auth.transport.requests"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, *client_folders()],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": os.defpath},
    )
    assert done.returncode == 0, done.stderr


class Impatient:
    """A client that waits here, whose time passes only in the pauses between requests."""

    def __init__(self, machines: Machines, *, then: Callable[[float], object]) -> None:
        self.now, self.warnings = 0.0, list[str]()
        self._then = then
        retry = RetryPolicy(clock=lambda: self.now, pause=self._pause)
        self._services = Services(GcsStore("jobs", retry=retry), machines.backend)

    def _pause(self, seconds: float) -> None:
        self.now += seconds
        self._then(self.now)

    def wait(self, record: JobRecord, seconds: float | None = None) -> JobStatus:
        deadline = Deadline(seconds)
        return wait_for_outcome(record, self._services, deadline, warn=self.warnings.append).status


@pytest.mark.parametrize("status", [503, 403])
def test_an_outage_of_any_length_ends_no_wait_for_a_job_on_this_machine(
    machines: Machines, tmp_path: Path, status: int
) -> None:
    end = tmp_path / "end"
    record = machines.start(
        f"import os, time\nprint('up', flush=True)\nwhile not os.path.exists({str(end)!r}): time.sleep(0.01)"
    )
    machines.until_up(record)

    def outlast(now: float) -> None:
        if now > RetryPolicy().limit:
            machines.server.faults.clear()
            end.touch()

    # A refusal is not tried again by the client: it is over when two looks have met it.
    times = None if status == 503 else 5
    machines.server.faults.add(operation="objects.get*", status=status, times=times)
    if times is not None:
        end.touch()
    client = Impatient(machines, then=outlast)

    assert client.wait(record) is JobStatus.SUCCEEDED
    [warning] = client.warnings
    assert f"The wait for job {record.job_id} goes on." in warning


def test_a_wait_in_an_outage_ends_with_its_deadline_or_the_job(
    machines: Machines,
) -> None:
    record = machines.start(SLEEP)
    machines.until_up(record)
    machines.server.faults.add(status=503)

    with pytest.raises(ResultTimeoutError, match=r"still RUNNING \(Could not look|Could not read"):
        Impatient(machines, then=lambda _: None).wait(record, 0.1)

    supervisor = machines.supervisor(record)
    client = Impatient(machines, then=lambda now: now > 30 and supervisor.kill())
    with pytest.raises(StoreUnavailableError):
        client.wait(record)
    assert len(client.warnings) == 1
