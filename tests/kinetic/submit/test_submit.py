from __future__ import annotations

import io
import threading
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, count, repeat
from pathlib import Path
from typing import Any

import pytest

import kinetic
from kinetic.backends.backend import Environment
from kinetic.console import Console
from kinetic.errors import (
    ConfigurationError,
    InvalidRequestError,
    KineticError,
    PreconditionFailedError,
    StoreError,
    StorePermissionError,
    StoreUnavailableError,
    SubmitError,
)
from kinetic.home.collection import collect_unrecorded
from kinetic.job_status import JobStatus
from kinetic.jobs.handle import JobHandle
from kinetic.jobs.records import find_outcome, find_record
from kinetic.jobs.status import look
from kinetic.settings.keys import KeyFile
from kinetic.settings.settings import resolve
from kinetic.submit.options import check_options
from kinetic.submit.package import Packaging
from kinetic.submit.request import JobRequest, request_of
from kinetic.submit.submit import submit
from kinetic_payload.layout import JobObjects
from kinetic_payload.records.job import JobRecord
from kinetic_payload.records.signing import verify
from kinetic_payload.stores.store import Location, ObjectInfo
from kinetic_payload.threads import Stopped, pause
from kinetic_servers.fakes import FakeBackend, FakeServices, FakeStore, Journal, raising
from kinetic_servers.launches import job_ids_of

CONTEXTS = ("contexts/", "data/", "data-markers/")
A_DAY = 86_400.0


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return one `KINETIC_HOME` for all tests here: its key is made once."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def services() -> FakeServices:
    return FakeServices.make()


class User:
    """Submits a function of *project*, whose folder is the working directory."""

    def __init__(self, project: Any, home: Path) -> None:
        self.project, self.home = project, home
        self.function = project.module("jobs", "def work(x):\n    return x\n").work

    def request(self, captured: dict[str, str] | None = None, **options: Any) -> JobRequest:
        checked = check_options(**{"accelerator": "cpu", "backend": "local", **options})
        environ = {"KINETIC_HOME": str(self.home)}
        settings = resolve(checked.overrides, environ=environ, user_home=self.home)
        return request_of(
            checked, lambda: None, settings, environ=captured or {}, cwd=self.project.root
        )

    def submit(
        self,
        services: FakeServices,
        x: object = 1,
        *,
        request: JobRequest | None = None,
        **how: Any,
    ) -> JobHandle:
        request = request or self.request()
        return submit(request, self.function, (x,), {}, services=services, **how)


@pytest.fixture
def user(project: Any, home: Path, monkeypatch: pytest.MonkeyPatch) -> User:
    monkeypatch.chdir(project.root)
    return User(project, home)


def of_jobs(services: FakeServices) -> list[str]:
    """Return the objects of jobs; projects, data and summaries are kept."""
    return [name for name in services.left() if not name.startswith(CONTEXTS)]


def recorded(services: FakeServices) -> JobRecord:
    """Return the record of the only job."""
    [name] = [name for name in services.store.names() if name.endswith("/handle.json")]
    found = find_record(services.store, name.partition("/")[0])
    assert found is not None
    return found.record


def test_a_job_is_stored_then_recorded_then_started(user: User, services: FakeServices) -> None:
    handle = user.submit(services)

    steps = [step.replace(handle.job_id, "JOB") for step in services.journal.of("[ws][rt][ia]*")]
    assert steps[0].startswith("write contexts/")
    assert steps[1:] == ["write JOB/payload.pkl", "write JOB/handle.json", "start JOB"]
    assert services.journal.of("limited *") == ["limited 50"]
    assert handle.status() is JobStatus.PENDING
    services.backend.returns(handle.job_id, 42)
    assert handle.result() == 42


def test_each_submit_is_a_job_of_its_own_and_an_unchanged_project_is_uploaded_once(
    user: User, services: FakeServices
) -> None:
    ids = {user.submit(services, x).job_id for x in range(3)}

    assert sorted(ids) == job_ids_of(services.backend)
    assert len(ids) == 3
    assert len(services.journal.of("write contexts/*")) == 1


def test_the_upload_stops_when_the_environment_fails(user: User, services: FakeServices) -> None:
    uploading, stopped = threading.Event(), threading.Event()

    def fail() -> None:
        uploading.wait(60)
        raise SubmitError("There is no such package.")

    def upload_slowly() -> None:
        uploading.set()
        try:
            pause(60)
        except Stopped:
            stopped.set()
            raise

    services.journal.before("environment", fail)
    services.journal.before("write */payload.pkl", upload_slowly)
    with pytest.raises(SubmitError, match="no such package"):
        user.submit(services)

    assert stopped.is_set()
    assert of_jobs(services) == []


def test_nothing_is_uploaded_before_the_dependencies_are_checked(
    user: User, services: FakeServices
) -> None:
    error = InvalidRequestError("requirements.txt:3: there is no such package.")
    services.journal.before("dependencies", raising(error))

    with pytest.raises(InvalidRequestError, match=r"requirements\.txt:3"):
        user.submit(services)

    assert services.journal.of("write *") == []


def test_a_submit_that_took_days_is_refused_if_its_payload_was_collected(
    user: User, services: FakeServices
) -> None:
    store, times = services.store, chain([0.0], repeat(2 * A_DAY))

    def collect() -> None:
        ids = [folder.rstrip("/") for folder in store.folders()]
        collect_unrecorded(store, ids, store.now() + 2 * A_DAY)

    services.journal.before("write */handle.json", collect)
    with pytest.raises(SubmitError, match="longer than a day"):
        user.submit(services, clock=lambda: next(times))

    assert services.journal.of("start *") == []
    assert of_jobs(services) == []


def test_a_submit_that_took_days_renews_its_payload_so_that_it_is_not_collected(
    user: User, services: FakeServices
) -> None:
    store, times = services.store, chain([0.0], repeat(2 * A_DAY))
    listed: list[ObjectInfo] = []

    def list_payloads() -> None:
        listed.extend(info for info in store.list() if info.name.endswith("/payload.pkl"))

    services.journal.before("write */handle.json", list_payloads)
    user.submit(services, clock=lambda: next(times))

    [payload] = listed
    with pytest.raises(PreconditionFailedError):
        store.delete(payload.name, if_generation=payload.generation)


def test_the_record_contains_the_request_but_no_captured_values(
    user: User, services: FakeServices
) -> None:
    request = user.request(
        accelerator="tpu-v5litepod-16",
        backend="local-gke",
        retries=2,
        timeout=60,
        labels={"team": "vision"},
        output_dir="out",
        captured={"TOKEN": "s3cret"},
        capture_env_vars=["TOKEN"],
    )

    handle = user.submit(services, request=request)

    record = recorded(services)
    assert (record.hosts, record.retries, record.timeout) == (4, 2, 60.0)
    assert (record.backend, record.project) == ("local-gke", "local")
    assert record.labels == {"team": "vision"}
    assert Path(record.output_dir).is_absolute()
    assert record.captured_env == ("TOKEN",)
    assert f"kinetic {kinetic.__version__}" in record.client
    assert record.payload_digest
    assert JobHandle.from_job_context(record, "local-gke", record.namespace, record.k8s_name) == (
        handle
    )
    launch = services.backend.launch_of(handle.job_id)
    assert launch.request.captured_env["TOKEN"] == "s3cret"
    assert "s3cret" not in repr(launch)
    assert [n for n in services.store.names() if b"s3cret" in services.store.read(n)] == []


@pytest.mark.parametrize("bucket", [False, True])
def test_the_record_is_signed_over_a_bucket_only(user: User, bucket: bool) -> None:
    services = FakeServices.make(home=user.home if bucket else None)

    handle = user.submit(services)

    launch = services.backend.launch_of(handle.job_id)
    if bucket:
        name = JobObjects(handle.job_id).handle
        verify(services.store.read(name), KeyFile(user.home).ensure(), name=name)
        assert launch.signing_key == KeyFile(user.home).ensure()
    else:
        assert recorded(services).signature is None
        assert launch.signing_key is None


# Errors, Ctrl-C and rollback


@pytest.mark.parametrize("bucket", [False, True])
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize(
    "pattern", ["write contexts/*", "write */payload.pkl", "write */handle.json", "start *"]
)
@pytest.mark.parametrize("error", [StoreUnavailableError("Away."), KeyboardInterrupt()])
def test_a_submit_that_fails_or_is_interrupted_leaves_nothing_of_its_job(
    user: User, bucket: bool, moment: str, pattern: str, error: BaseException
) -> None:
    services = FakeServices.make(home=user.home if bucket else None)
    getattr(services.journal, moment)(pattern, raising(error))

    with pytest.raises(type(error)) as caught:
        user.submit(services)

    assert caught.value is error
    assert of_jobs(services) == []
    assert job_ids_of(services.backend) == []


@pytest.mark.parametrize(
    ("moment", "pattern"), [("after", "write */handle.json"), ("before", "start *")]
)
def test_a_job_that_is_being_submitted_is_pending_for_other_processes(
    user: User, services: FakeServices, moment: str, pattern: str
) -> None:
    seen: list[JobStatus] = []
    getattr(services.journal, moment)(
        pattern, lambda: seen.append(look(recorded(services), services).status)
    )

    handle = user.submit(services)

    assert seen == [JobStatus.PENDING]
    assert find_outcome(services.store, handle.job_id) is None


def test_objects_are_removed_newest_first(user: User, services: FakeServices) -> None:
    services.journal.after("start *", raising(SubmitError("no")))

    with pytest.raises(SubmitError):
        user.submit(services)

    assert services.journal.of("limited *") == ["limited 50", "limited 10"]
    steps = services.journal.of("remove *", "delete *")
    assert steps[0].startswith("remove cpu-")
    # The backend wrote the outcome when it stopped the job.
    assert [Path(step).name for step in steps[1:]] == ["handle.json", "payload.pkl", "outcome.json"]


@pytest.mark.parametrize("pattern", ["remove *", "delete */handle.json", "delete */payload.pkl"])
def test_a_rollback_that_fails_is_a_note_of_the_error_that_caused_it(
    user: User, services: FakeServices, pattern: str
) -> None:
    services.journal.after("start *", raising(SubmitError("No room on this machine.")))
    services.journal.refuse(pattern, StoreError("The network is away."))

    with pytest.raises(SubmitError, match="No room on this machine") as caught:
        user.submit(services)

    [note] = caught.value.__notes__
    assert "The network is away." in note
    assert "kinetic jobs cleanup cpu-" in note
    if pattern == "remove *":  # The job may still run, and is found by its record.
        [job_id] = job_ids_of(services.backend)
        assert find_record(services.store, job_id) is not None


def test_an_object_that_may_not_be_written_is_not_removed(user: User) -> None:
    services = FakeServices.make(home=user.home)
    services.journal.refuse("write */payload.pkl", StorePermissionError("You may not."))

    with pytest.raises(StorePermissionError) as caught:
        user.submit(services)

    assert services.journal.of("delete *", "remove *") == []
    assert not hasattr(caught.value, "__notes__")


class Bucket(FakeStore):
    """A store in which each request costs time."""

    location = Location("gs", "bucket")


@pytest.mark.parametrize("seconds", [0.0, 9.0])
def test_over_a_bucket_a_clean_up_is_looked_for_only_after_a_slow_start(
    user: User, seconds: float
) -> None:
    journal = Journal()
    store = Bucket(journal)
    services = FakeServices(store, FakeBackend(store, journal), journal)
    times = count(0.0, seconds)

    def remove() -> None:
        store.delete(JobObjects(recorded(services).job_id).handle)

    journal.after("start *", remove)
    if seconds:
        with pytest.raises(SubmitError, match="cleaned up by another process"):
            user.submit(services, clock=lambda: next(times))
        assert job_ids_of(services.backend) == []
    else:
        job = user.submit(services, clock=lambda: next(times))
        assert job_ids_of(services.backend) == [job.job_id]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("of a handler")])
def test_an_error_of_the_last_message_is_ignored_and_ctrl_c_names_the_job_that_keeps_running(
    user: User, services: FakeServices, error: BaseException
) -> None:
    class Failing(Console):
        def phase(self, text: str) -> None:
            if text.startswith("submitted"):
                raise error

    console = Failing(io.StringIO(), io.StringIO(), interactive=False)

    if isinstance(error, KeyboardInterrupt):
        with pytest.raises(KeyboardInterrupt) as interrupted:
            user.submit(services, console=console)
        [job_id] = job_ids_of(services.backend)
        assert f"keeps running: {job_id}" in "\n".join(interrupted.value.__notes__)
    else:
        job = user.submit(services, console=console)
        assert job_ids_of(services.backend) == [job.job_id]


# Refusals before anything is stored


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (threading.Lock(), "'x'"),
        ([kinetic.Data("gs://bucket/set/", fuse=True)], "gs://bucket/set/"),
        ([kinetic.Data("/no/such/file")], "/no/such/file"),
    ],
    ids=["does not pickle", "data of a bucket that cannot be mounted", "missing data"],
)
def test_an_argument_that_cannot_be_sent_is_refused_before_anything_is_stored(
    user: User, services: FakeServices, x: object, message: str
) -> None:
    with pytest.raises(KineticError, match=message):
        user.submit(services, x)

    assert services.store.names() == []


def test_a_backend_may_refuse_data_before_anything_is_stored_or_warn_once(
    user: User, services: FakeServices, tmp_path: Path
) -> None:
    class Selective(FakeBackend):
        def check(self, request: JobRequest, data: kinetic.Data | None = None) -> Sequence[str]:
            if data is None:
                return ()
            if data.fuse:
                raise InvalidRequestError(f"{data!r} cannot be mounted.")
            return [f"{data.path} is far away"]

    selective = replace(services, backend=Selective(services.store))
    (tmp_path / "set").write_text("1")
    copied, mounted = (kinetic.Data(str(tmp_path / "set"), fuse=fuse) for fuse in (False, True))

    with pytest.raises(InvalidRequestError, match="cannot be mounted"):
        user.submit(selective, mounted)
    assert services.store.names() == []

    with pytest.warns(UserWarning, match="is far away") as caught:
        user.submit(selective, [copied, copied])
    assert len([one for one in caught if "far away" in str(one.message)]) == 1


def test_a_home_that_cannot_be_written_or_has_a_damaged_key_is_refused(
    user: User, services: FakeServices, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text("short\n")
    bucket = FakeServices.make(home=tmp_path)
    with pytest.raises(ConfigurationError, match="key"):
        user.submit(bucket)
    assert bucket.store.names() == []

    user.home = tmp_path / "key" / "home"
    with pytest.raises(SubmitError, match="KINETIC_HOME") as caught:
        user.submit(services)
    assert str(user.home) in str(caught.value)
    assert services.store.names() == []


# Output


def test_progress_and_warnings_go_to_the_console(user: User, services: FakeServices) -> None:
    user.project.write(".env", "SECRET=1")
    out, err = io.StringIO(), io.StringIO()
    console = Console(out, err, interactive=False)

    handle = user.submit(services, request=user.request(capture_env_vars=["GONE"]), console=console)

    assert handle.job_id
    lines = err.getvalue().splitlines()
    assert any("GONE" in line for line in lines)
    assert any("left out of the snapshot" in line and ".env" in line for line in lines)
    assert out.getvalue() == ""


def test_without_a_console_warnings_of_all_threads_name_the_line_of_the_caller(
    user: User, services: FakeServices
) -> None:
    class Building(FakeBackend):
        def environment(self, request: JobRequest, project: Packaging) -> Environment:
            project.notices.warn("The image has Python 3.9.")
            pause(5.2)
            return super().environment(request, project)

    building = replace(services, backend=Building(services.store))
    with pytest.warns(UserWarning, match="GONE") as caught:
        user.submit(
            building, request=user.request(capture_env_vars=["GONE"], container_image="bundled")
        )

    given = [warning for warning in caught if warning.category is UserWarning]
    assert [warning.filename for warning in given] == [__file__] * 3
    assert "has Python 3.9" in str(given[1].message)
    assert "not ready after 5 s" in str(given[2].message)
