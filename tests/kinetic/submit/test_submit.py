from __future__ import annotations

import io
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain, count, repeat
from pathlib import Path
from typing import Any

import pytest

import kinetic
from kinetic.backends.local.collection import collect_unrecorded
from kinetic.console import Console
from kinetic.errors import (
    ConfigurationError,
    InvalidRequestError,
    KineticError,
    PayloadError,
    PreconditionFailedError,
    StoreError,
    StorePermissionError,
    StoreUnavailableError,
    SubmitError,
)
from kinetic.job_status import JobStatus
from kinetic.jobs.handle import JobHandle
from kinetic.jobs.records import find_outcome, find_record
from kinetic.jobs.status import look
from kinetic.jobs.stop import clean_up
from kinetic.settings.keys import signing_key
from kinetic.settings.settings import resolve
from kinetic.submit.options import check_options
from kinetic.submit.request import JobRequest, request_of
from kinetic.submit.submit import submit
from kinetic.testing import job_ids_of
from kinetic.testing.fakes import FakeBackend, FakeServices, FakeStore, Journal, raising
from kinetic_payload.layout import JobObjects
from kinetic_payload.records.signing import verify
from kinetic_payload.stores.store import Location, ObjectInfo
from kinetic_payload.threads import Stopped, pause

Ask = Callable[..., JobRequest]
CONTEXTS = ("contexts/", "data/", "data-markers/")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return one `KINETIC_HOME` for all tests here: the runner is bundled once."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def services() -> FakeServices:
    return FakeServices.make()


@pytest.fixture
def work(project) -> Any:
    return project.module("jobs", "def work(x):\n    return x\n").work


@pytest.fixture
def ask(project, home: Path, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Return what makes a request for a function of the project."""
    monkeypatch.chdir(project.root)

    def request(captured: dict[str, str] | None = None, **options: Any) -> JobRequest:
        checked = check_options(**{"accelerator": "cpu", "backend": "local", **options})
        settings = resolve(checked.settings, environ={"KINETIC_HOME": str(home)}, user_home=home)
        return request_of(checked, lambda: None, settings, environ=captured or {}, cwd=project.root)

    return request


def started(services: FakeServices, request: JobRequest, work: Any, x: object = 1) -> JobHandle:
    return submit(request, work, (x,), {}, services=services)


def test_a_job_is_stored_then_recorded_then_started(
    services: FakeServices, ask: Ask, work: Any
) -> None:
    handle = started(services, ask(), work)

    names = JobObjects(handle.job_id)
    written = [
        entry.replace(handle.job_id, "JOB") for entry in services.journal.of("[ws][rt][ia]*")
    ]
    assert written[0].startswith("write contexts/")
    assert written[1:] == ["write JOB/payload.pkl", "write JOB/handle.json", "start JOB"]
    assert set(services.store.names()) >= {names.payload, names.handle}


def test_an_upload_is_given_up_when_there_is_no_environment_to_run_in(ask: Ask, work: Any) -> None:
    services = FakeServices.make()
    uploading, given_up = threading.Event(), threading.Event()

    def fail() -> None:
        uploading.wait(60)
        raise SubmitError("There is no such package.")

    def upload_slowly() -> None:
        uploading.set()
        try:
            pause(60)
        except Stopped:
            given_up.set()
            raise

    services.journal.before("environment", fail)
    services.journal.before("write */payload.pkl", upload_slowly)
    with pytest.raises(SubmitError, match="no such package"):
        started(services, ask(), work)

    assert given_up.is_set()
    assert [name for name in services.store.names() if not name.startswith(CONTEXTS)] == []


def test_nothing_is_uploaded_before_the_dependencies_are_known_to_be_usable(
    ask: Ask, work: Any
) -> None:
    services = FakeServices.make()

    def fail() -> None:
        raise InvalidRequestError("requirements.txt:3: there is no such package.")

    services.journal.before("dependencies", fail)
    with pytest.raises(InvalidRequestError, match=r"requirements\.txt:3"):
        started(services, ask(), work)

    assert services.journal.of("write *") == []


A_DAY = 86_400.0


def test_a_submit_that_took_days_and_whose_payload_was_collected_says_so(
    services: FakeServices, ask: Ask, work: Any
) -> None:
    store, times = services.store, chain([0.0], repeat(2 * A_DAY))

    def collect() -> None:
        ids = [folder.rstrip("/") for folder in store.folders()]
        collect_unrecorded(store, ids, store.now() + 2 * A_DAY)

    services.journal.before("write */handle.json", collect)
    with pytest.raises(SubmitError, match="longer than a day"):
        submit(ask(), work, (1,), {}, services=services, clock=lambda: next(times))

    assert services.journal.of("start *") == []
    assert [name for name in store.names() if not name.startswith(CONTEXTS)] == []


def test_a_submit_that_took_days_renews_its_payload_before_an_older_look_can_cost_it(
    services: FakeServices, ask: Ask, work: Any
) -> None:
    store, times = services.store, chain([0.0], repeat(2 * A_DAY))
    seen: list[ObjectInfo] = []

    def look() -> None:
        seen.extend(info for info in store.list() if info.name.endswith("/payload.pkl"))

    services.journal.before("write */handle.json", look)
    submit(ask(), work, (1,), {}, services=services, clock=lambda: next(times))

    [payload] = seen
    with pytest.raises(PreconditionFailedError):
        store.delete(payload.name, if_generation=payload.generation)


def test_the_record_says_what_was_asked_for(services: FakeServices, ask: Ask, work: Any) -> None:
    request = ask(
        accelerator="tpu-v5litepod-16",
        backend="local-gke",
        retries=2,
        timeout=60,
        labels={"team": "vision"},
        output_dir="out",
        captured={"TOKEN": "s3cret"},
        capture_env_vars=["TOKEN"],
    )

    handle = started(services, request, work)

    record = find_record(services.store, handle.job_id).record
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


def test_secret_values_are_given_to_the_backend_and_kept_nowhere(
    services: FakeServices, ask: Ask, work: Any
) -> None:
    handle = started(services, ask(captured={"TOKEN": "s3cret"}, capture_env_vars=["TOKEN"]), work)

    launch = services.backend.launch_of(handle.job_id)
    assert launch.request.captured_env["TOKEN"] == "s3cret"
    assert "s3cret" not in repr(launch)
    assert [n for n in services.store.names() if b"s3cret" in services.store.read(n)] == []


def test_the_handle_asks_those_who_started_the_job(
    services: FakeServices, ask: Ask, work: Any
) -> None:
    handle = started(services, ask(), work)

    assert handle.status() is JobStatus.PENDING
    services.backend.returns(handle.job_id, 42)
    assert handle.result() == 42


def test_every_submit_is_a_job_of_its_own_and_an_unchanged_tree_goes_up_once(
    services: FakeServices, ask: Ask, work: Any
) -> None:
    ids = {started(services, ask(), work, x).job_id for x in range(3)}

    assert sorted(ids) == job_ids_of(services.backend)
    assert len(ids) == 3
    assert len(services.journal.of("write contexts/*")) == 1


def of_jobs(services: FakeServices) -> list[str]:
    return [name for name in services.store.names() if not name.startswith(CONTEXTS)]


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize(
    "pattern", ["write contexts/*", "write */payload.pkl", "write */handle.json", "start *"]
)
@pytest.mark.parametrize("error", [StoreError("No space left."), KeyboardInterrupt()])
def test_a_submit_that_fails_or_is_interrupted_leaves_nothing_of_its_job(
    services: FakeServices, ask: Ask, work: Any, moment: str, pattern: str, error: BaseException
) -> None:
    getattr(services.journal, moment)(pattern, raising(error))

    with pytest.raises(type(error)) as caught:
        started(services, ask(), work)

    assert caught.value is error
    assert of_jobs(services) == []
    assert job_ids_of(services.backend) == []


@pytest.mark.parametrize(
    ("moment", "pattern"), [("after", "write */handle.json"), ("before", "start *")]
)
def test_who_finds_a_job_while_it_is_submitted_does_not_take_it_for_one_that_vanished(
    services: FakeServices, ask: Ask, work: Any, moment: str, pattern: str
) -> None:
    seen = []

    def find() -> None:
        [name] = [name for name in services.store.names() if name.endswith("/handle.json")]
        found = find_record(services.store, name.partition("/")[0])
        assert found is not None
        seen.append(look(found.record, services).status)

    getattr(services.journal, moment)(pattern, find)
    handle = started(services, ask(), work)

    assert seen == [JobStatus.PENDING]
    assert find_outcome(services.store, handle.job_id) is None


def test_what_was_made_is_taken_back_newest_first(
    services: FakeServices, ask: Ask, work: Any
) -> None:
    services.journal.after("start *", raising(SubmitError("no")))

    with pytest.raises(SubmitError):
        started(services, ask(), work)

    steps = services.journal.of("remove *", "delete *")
    assert steps[0].startswith("remove cpu-")
    # The outcome is what the backend wrote when it was told to stop.
    assert [Path(step).name for step in steps[1:]] == ["handle.json", "payload.pkl", "outcome.json"]


@pytest.mark.parametrize("pattern", ["remove *", "delete */handle.json", "delete */payload.pkl"])
def test_what_cannot_be_taken_back_does_not_hide_the_reason(
    services: FakeServices,
    ask: Ask,
    work: Any,
    pattern: str,
) -> None:
    services.journal.after("start *", raising(SubmitError("No room on this machine.")))
    services.journal.refuse(pattern, StoreError("The network is away."))

    with pytest.raises(SubmitError, match="No room on this machine") as caught:
        started(services, ask(), work)

    [note] = caught.value.__notes__
    assert "The network is away." in note
    assert "kinetic jobs cleanup cpu-" in note


def test_a_job_that_may_still_run_keeps_the_record_by_which_it_is_found(
    services: FakeServices, ask: Ask, work: Any
) -> None:
    services.journal.after("start *", raising(SubmitError("The answer was lost.")))
    services.journal.refuse("remove *", StoreError("The network is away."))

    with pytest.raises(SubmitError):
        started(services, ask(), work)

    [job_id] = job_ids_of(services.backend)
    assert find_record(services.store, job_id) is not None


@pytest.mark.parametrize(
    ("moment", "pattern"),
    [("after", "write */handle.json"), ("before", "start *"), ("after", "start *")],
)
def test_a_job_that_is_cleaned_up_while_it_starts_leaves_nothing_and_that_is_said(
    services: FakeServices, ask: Ask, work: Any, moment: str, pattern: str
) -> None:
    def clean() -> None:
        [name] = [name for name in services.store.names() if name.endswith("/handle.json")]
        found = find_record(services.store, name.partition("/")[0])
        assert found is not None
        clean_up(
            found.record, services, resource=True, artifacts=True, timeout=60, poll_interval=0.01
        )

    getattr(services.journal, moment)(pattern, clean)

    with pytest.raises(SubmitError, match="cleaned up by another process while it was started"):
        started(services, ask(), work)

    assert of_jobs(services) == []
    assert job_ids_of(services.backend) == []


class Bucket(FakeStore):
    """A store whose every request costs time."""

    location = Location("gs", "bucket")


@pytest.mark.parametrize("seconds", [0.0, 9.0])
def test_over_a_bucket_that_is_looked_for_only_if_the_start_took_long(
    ask: Ask, work: Any, seconds: float
) -> None:
    journal = Journal()
    store = Bucket(journal)
    services = FakeServices(store, FakeBackend(store, journal), journal)
    times = count(0.0, seconds)

    def start() -> JobHandle:
        return submit(ask(), work, (1,), {}, services=services, clock=lambda: next(times))

    def remove() -> None:
        [name] = [name for name in store.names() if name.endswith("/handle.json")]
        store.delete(name)

    journal.after("start *", remove)
    if seconds:
        with pytest.raises(SubmitError, match="cleaned up by another process"):
            start()
        assert job_ids_of(services.backend) == []
    else:
        job = start()
        assert job_ids_of(services.backend) == [job.job_id]


class Broken(io.StringIO):
    """A stream whose reader is gone, or whose disk is full."""

    def write(self, text: str) -> int:
        raise BrokenPipeError(32, "Broken pipe")

    def flush(self) -> None:
        raise OSError(28, "No space left on device")


class Poor(io.StringIO):
    """A stream that cannot say what it is told, whatever it is."""

    def write(self, text: str) -> int:
        raise UnicodeEncodeError("latin-1", text, 0, 1, "ordinal not in range(256)")


@pytest.mark.parametrize("stream", [Broken, Poor])
@pytest.mark.parametrize("interactive", [False, True])
def test_progress_that_nobody_can_read_costs_no_job(
    services: FakeServices,
    ask: Ask,
    work: Any,
    project,
    stream: type[io.StringIO],
    interactive: bool,
) -> None:
    project.write(".env", "SECRET=1")
    console = Console(io.StringIO(), stream(), interactive=interactive)

    with console:
        handle = submit(ask(), work, (1,), {}, services=services, console=console)

    assert job_ids_of(services.backend) == [handle.job_id]


def test_a_logger_that_fails_costs_no_job_that_has_started(
    services: FakeServices, ask: Ask, work: Any, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "submitted" in record.getMessage():
                raise ValueError("theirs")

    logger, failing = logging.getLogger("kinetic"), Failing()
    caplog.set_level(logging.INFO, "kinetic")
    logger.addHandler(failing)
    try:
        handle = started(services, ask(), work)
    finally:
        logger.removeHandler(failing)

    assert job_ids_of(services.backend) == [handle.job_id]


def test_ctrl_c_after_the_start_says_which_job_goes_on(
    services: FakeServices, ask: Ask, work: Any
) -> None:
    class Interrupted(Console):
        def phase(self, text: str) -> None:
            if text.startswith("submitted"):
                raise KeyboardInterrupt

    console = Interrupted(io.StringIO(), io.StringIO(), interactive=False)

    with pytest.raises(KeyboardInterrupt) as interrupted:
        submit(ask(), work, (1,), {}, services=services, console=console)

    [job_id] = job_ids_of(services.backend)
    assert f"keeps running: {job_id}" in "\n".join(interrupted.value.__notes__)


def test_a_call_that_does_not_pickle_is_refused_before_anything_is_stored(
    services: FakeServices, ask: Ask, work: Any
) -> None:
    with pytest.raises(PayloadError, match="'x'"):
        started(services, ask(), work, threading.Lock())

    assert services.store.names() == []


def test_data_that_the_backend_cannot_serve_is_refused_before_anything_is_stored(
    services: FakeServices, ask: Ask, work: Any, tmp_path: Path
) -> None:
    for data in (
        kinetic.Data("gs://bucket/set/", fuse=True),
        kinetic.Data(str(tmp_path / "gone")),
    ):
        with pytest.raises(KineticError) as caught:
            started(services, ask(), work, [data])
        assert data.path in str(caught.value)

    assert services.store.names() == []


class Choosy(FakeBackend):
    """Mounts nothing, and warns of the rest."""

    def check_data(self, request: JobRequest, data: kinetic.Data) -> Sequence[str]:
        if data.fuse:
            raise InvalidRequestError(f"{data!r} cannot be mounted.")
        return [f"{data.path} is far away"]


def test_a_backend_may_refuse_data_before_anything_is_stored_or_warn_of_it(
    services: FakeServices, ask: Ask, work: Any, tmp_path: Path
) -> None:
    choosy = replace(services, backend=Choosy(services.store))
    (tmp_path / "set").write_text("1")
    near, mounted = (kinetic.Data(str(tmp_path / "set"), fuse=fuse) for fuse in (False, True))

    with pytest.raises(InvalidRequestError, match="cannot be mounted"):
        started(choosy, ask(), work, mounted)
    assert services.store.names() == []

    with pytest.warns(UserWarning, match="is far away") as caught:
        started(choosy, ask(), work, [near, near])
    assert len([one for one in caught if "far away" in str(one.message)]) == 1


def test_a_home_that_cannot_be_written_is_told_in_words(
    services: FakeServices, work: Any, project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project.root)
    (tmp_path / "file").write_text("")
    home = tmp_path / "file" / "home"
    checked = check_options(accelerator="cpu", backend="local")
    settings = resolve(checked.settings, environ={"KINETIC_HOME": str(home)})
    request = request_of(checked, work, settings, environ={}, cwd=project.root)

    with pytest.raises(SubmitError, match="KINETIC_HOME") as caught:
        started(services, request, work)

    assert str(home) in str(caught.value)
    assert services.store.names() == []


def test_whoever_watches_is_told_what_happens(
    services: FakeServices, ask: Ask, work: Any, project
) -> None:
    project.write(".env", "SECRET=1")
    out, err = io.StringIO(), io.StringIO()
    console = Console(out, err, interactive=False)

    handle = submit(
        ask(capture_env_vars=["GONE"]), work, (1,), {}, services=services, console=console
    )

    said = err.getvalue().splitlines()
    assert any("GONE" in line for line in said)
    assert any("left out of the snapshot" in line and ".env" in line for line in said)
    assert said[-1] == f"kinetic: submitted {handle.job_id}"
    assert out.getvalue() == ""


def test_nobody_watching_is_warned_where_they_submit(
    services: FakeServices, ask: Ask, work: Any
) -> None:
    with pytest.warns(UserWarning, match="GONE") as caught:
        started(services, ask(capture_env_vars=["GONE"]), work)

    files = [warning.filename for warning in caught if warning.category is UserWarning]
    assert files == [__file__]


# Over a bucket


@pytest.fixture
def bucket(home: Path) -> FakeServices:
    return FakeServices.make(home=home)


def test_over_a_bucket_the_record_is_signed_and_the_job_gets_the_key(
    bucket: FakeServices, ask: Ask, work: Any, home: Path
) -> None:
    handle = started(bucket, ask(), work)

    name = JobObjects(handle.job_id).handle
    verify(bucket.store.read(name), signing_key(home), name=name)
    assert bucket.backend.launch_of(handle.job_id).signing_key == signing_key(home)
    bucket.backend.returns(handle.job_id, 42)
    assert handle.result() == 42


def test_in_a_folder_nothing_is_signed(services: FakeServices, ask: Ask, work: Any) -> None:
    handle = started(services, ask(), work)

    assert find_record(services.store, handle.job_id).record.signature is None
    assert services.backend.launch_of(handle.job_id).signing_key is None


def test_a_damaged_key_is_told_before_anything_is_stored(
    ask: Ask, work: Any, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text("short\n")
    bucket = FakeServices.make(home=tmp_path)

    with pytest.raises(ConfigurationError, match="key"):
        started(bucket, ask(), work)

    assert bucket.store.names() == []


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize(
    "pattern", ["write contexts/*", "write */payload.pkl", "write */handle.json", "start *"]
)
@pytest.mark.parametrize("error", [StoreUnavailableError("Away."), KeyboardInterrupt()])
def test_what_goes_up_together_is_taken_back_together(
    bucket: FakeServices, ask: Ask, work: Any, moment: str, pattern: str, error: BaseException
) -> None:
    getattr(bucket.journal, moment)(pattern, raising(error))

    with pytest.raises(type(error)) as caught:
        started(bucket, ask(), work)

    assert caught.value is error
    assert of_jobs(bucket) == []
    assert job_ids_of(bucket.backend) == []


def test_what_may_not_be_written_is_not_asked_to_be_removed(
    bucket: FakeServices, ask: Ask, work: Any
) -> None:
    bucket.journal.refuse("write */payload.pkl", StorePermissionError("You may not."))

    with pytest.raises(StorePermissionError) as caught:
        started(bucket, ask(), work)

    assert bucket.journal.of("delete *", "remove *") == []
    assert not hasattr(caught.value, "__notes__")
