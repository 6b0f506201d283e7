from __future__ import annotations

import base64
import hashlib
import json
import logging
import pickle
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import cloudpickle
import pytest

from kinetic.backends.backend import Explanation, Observation
from kinetic.errors import (
    CredentialsError,
    FutureRecordError,
    IntegrityError,
    JobCancelledError,
    JobFailedError,
    JobNotFoundError,
    KineticError,
    LoginRequiredError,
    ObjectNotFoundError,
    RecordError,
    RemoteError,
    ResultTimeoutError,
    ResultUnreadableError,
    SignatureError,
    StoreUnavailableError,
    UnavailableError,
)
from kinetic.job_status import JobStatus
from kinetic.jobs.collect import collect
from kinetic.jobs.logs import LiveLog, ends
from kinetic.jobs.records import find_outcome
from kinetic.jobs.status import look
from kinetic.jobs.stop import cancel
from kinetic.jobs.wait import WaitStopped
from kinetic.settings.keys import KeyFile, KeySigner
from kinetic.testing.fakes import (
    FakeBackend,
    FakeServices,
    a_report,
    raising,
    report,
    report_error,
    report_value,
)
from kinetic_payload.layout import INLINE_LIMIT, JobObjects
from kinetic_payload.records.encode import encode
from kinetic_payload.records.host_outcome import ErrorInfo, Pickled
from kinetic_payload.records.job import JobRecord
from kinetic_payload.records.outcome import Outcome

LARGE = bytes(2 * INLINE_LIMIT)


@pytest.fixture
def services() -> FakeServices:
    return FakeServices.make()


@pytest.fixture
def job(services: FakeServices) -> JobRecord:
    return services.job()


def result(
    job: JobRecord, services: FakeServices, *, stored: bytes | None = None, **more: Any
) -> Any:
    if stored is not None:
        name = JobObjects(job.job_id).handle
        more["verify"] = partial(services.verify, stored, name)
    return collect(job, services, **more).get()


def inline(data: bytes) -> Pickled:
    return Pickled(
        len(data), hashlib.sha256(data).hexdigest(), inline=base64.b64encode(data).decode()
    )


class Mark:
    """Something whose pickle writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


# The value


@pytest.mark.parametrize("value", [None, {"loss": 0.5}, LARGE])
def test_the_value_comes_back_as_often_as_it_is_asked_for(
    services: FakeServices, job: JobRecord, value: object
) -> None:
    services.backend.returns(job.job_id, value)

    assert result(job, services) == value
    assert result(job, services) == value


def test_a_value_outlives_its_resource(services: FakeServices, job: JobRecord) -> None:
    services.backend.returns(job.job_id, 42)
    services.backend.loses(job.job_id)

    assert result(job, services) == 42


def test_an_outage_that_is_seen_at_once_is_told_once_and_paused_for(
    services: FakeServices, job: JobRecord
) -> None:
    services.backend.returns(job.job_id, LARGE)
    untrusted = raising(StoreUnavailableError("its certificate is not trusted"))
    services.journal.before("read *attempt*", *[untrusted] * 5000)
    told: list[str] = []

    with pytest.raises(ResultTimeoutError, match="its certificate is not trusted"):
        result(job, services, timeout=0.5, warn=told.append)

    assert len(told) == 1
    assert len(services.journal.of("read *attempt*")) < 10


def test_an_outage_while_a_missing_object_is_explained_does_not_end_the_wait(
    services: FakeServices, job: JobRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    services.backend.returns(job.job_id, LARGE)
    store, tries = services.store, iter([StoreUnavailableError("Nobody answers.")])
    stat = store.stat

    def missing_once() -> None:
        monkeypatch.setattr(store, "stat", stat_or_fail)
        raise ObjectNotFoundError("It is not listed yet.")

    def stat_or_fail(name: str) -> Any:
        if (error := next(tries, None)) is not None:
            raise error
        return stat(name)

    services.journal.before("read *attempt*", missing_once)

    assert result(job, services, timeout=30, warn=lambda _: None) == LARGE


def test_waiting_goes_on_until_the_end_and_tells_each_status_once(
    services: FakeServices, job: JobRecord
) -> None:
    seen: list[JobStatus] = []
    services.journal.before(
        "wait *",
        lambda: services.backend.prints(job.job_id, "woken up, and nothing is new"),
        lambda: services.backend.runs(job.job_id),
        lambda: services.backend.returns(job.job_id, 42),
    )

    assert result(job, services, on_status_change=seen.append) == 42
    assert seen == [JobStatus.PENDING, JobStatus.RUNNING, JobStatus.SUCCEEDED]


def test_what_a_status_callback_raises_is_logged_and_costs_nothing(
    services: FakeServices, job: JobRecord, caplog: pytest.LogCaptureFixture
) -> None:
    services.backend.returns(job.job_id, 42)

    def broken(status: JobStatus) -> None:
        raise ZeroDivisionError("theirs")

    with caplog.at_level(logging.ERROR, "kinetic"):
        assert result(job, services, on_status_change=broken) == 42

    assert "theirs" in caplog.text


def test_every_line_is_handed_on_before_the_value_is(
    services: FakeServices, job: JobRecord
) -> None:
    lines: list[str] = []
    services.backend.prints(job.job_id, "first")

    def end() -> None:
        services.backend.prints(job.job_id, "last")
        services.backend.returns(job.job_id, 42)

    services.journal.before("wait *", end)

    assert result(job, services, on_line=lambda line: lines.append(line.text)) == 42
    assert lines == ["first", "last"]


def test_a_log_that_does_not_come_to_its_end_is_given_up_in_words(
    services: FakeServices, job: JobRecord
) -> None:
    shown, told = threading.Event(), []
    services.backend.prints(job.job_id, "hello")
    services.backend.returns(job.job_id, 42)

    with LiveLog(job, services, lambda line: shown.wait(60), told.append, idle_seconds=0.01):
        pass
    shown.set()

    [said] = told
    assert said.endswith(f"kinetic jobs logs {job.job_id}")


def test_a_wait_that_times_out_leaves_no_thread_that_follows_the_log(
    services: FakeServices, job: JobRecord
) -> None:
    services.backend.runs(job.job_id)
    services.backend.prints(job.job_id, "hello")
    before = set(threading.enumerate())
    shown = threading.Event()

    with pytest.raises(ResultTimeoutError):
        result(job, services, timeout=0.2, on_line=lambda _: shown.set())

    assert shown.wait(10)
    for thread in set(threading.enumerate()) - before:
        thread.join(10)
        assert not thread.is_alive()


@pytest.mark.parametrize(("done", "ended"), [([1, 2, 3], True), ([1, 2, 2], False)])
def test_what_gets_something_done_is_waited_for_however_long_it_takes(
    done: list[int], ended: bool
) -> None:
    class Slow:
        rounds = 0

        def is_alive(self) -> bool:
            return self.rounds < 3

        def join(self, timeout: float) -> None:
            self.rounds += 1

    slow = Slow()

    assert ends(cast("Any", slow), lambda: done[slow.rounds], idle_seconds=10) is ended


@pytest.mark.parametrize("broken", ["the log", "who is told"])
def test_a_log_that_breaks_off_costs_no_result(
    services: FakeServices, job: JobRecord, caplog: pytest.LogCaptureFixture, broken: str
) -> None:
    fail = raising(OSError("gone"))
    if broken == "the log":
        services.journal.before("log_lines *", fail)
    services.backend.prints(job.job_id, "hello")
    services.backend.returns(job.job_id, 42)

    with caplog.at_level(logging.WARNING, "kinetic"):
        assert result(job, services, on_line=lambda line: fail()) == 42

    assert "broke off: gone" in caplog.text


def test_a_log_is_whole_though_the_login_expired_before_its_first_line(
    services: FakeServices, job: JobRecord
) -> None:
    expired = raising(LoginRequiredError("The session has ended.", hint="Run `sso login`."))
    services.journal.before("log_lines *", expired, expired)
    services.backend.prints(job.job_id, "hello")
    services.backend.returns(job.job_id, 42)
    lines, told = list[str](), list[str]()

    assert (
        result(job, services, on_line=lambda line: lines.append(line.text), warn=told.append) == 42
    )
    assert lines == ["hello"]
    assert told == []


def test_a_value_that_cannot_be_unpickled_here_is_kept(
    services: FakeServices, job: JobRecord
) -> None:
    report(services.store, a_report(job.job_id, value=inline(b"cno_such_module\nThing\n.")))
    before = services.store.names()

    with pytest.raises(ResultUnreadableError, match="no_such_module"):
        result(job, services)

    assert services.store.names() == before


OTHER_PYTHON = f"3.{sys.version_info[1] + 1}.2"
VERSIONS = f"written by Python {OTHER_PYTHON[:-2]} and read by Python 3.{sys.version_info[1]}"


@pytest.mark.parametrize("data", [cloudpickle.dumps(lambda: 1), b"cno_such_module\nThing\n."])
def test_a_value_of_another_python_is_unreadable_for_the_reason_that_holds(
    services: FakeServices, job: JobRecord, data: bytes
) -> None:
    report(services.store, a_report(job.job_id, value=inline(data), python=OTHER_PYTHON))

    with pytest.raises(ResultUnreadableError, match=VERSIONS) as caught:
        result(job, services)

    assert caught.value.hint == (
        f"The value is kept. Call result() from Python {OTHER_PYTHON[:-2]}."
    )


def test_plain_values_of_another_python_come_home(services: FakeServices, job: JobRecord) -> None:
    value = inline(pickle.dumps({"loss": 0.5}))
    report(services.store, a_report(job.job_id, value=value, python=OTHER_PYTHON))

    assert result(job, services) == {"loss": 0.5}


def test_an_exception_of_another_python_is_told_with_both_versions(
    services: FakeServices, job: JobRecord
) -> None:
    class OwnError(Exception):
        def __str__(self) -> str:
            return "own"

    pickled = inline(cloudpickle.dumps(OwnError()))
    info = ErrorInfo("__main__.OwnError", "own", "Traceback of the job", pickled=pickled)
    failed = {"succeeded": False, "reason": "exception", "phase": "call", "exit_code": 1}
    report(services.store, a_report(job.job_id, **failed, error=info, python=OTHER_PYTHON))

    with pytest.raises(RemoteError, match=rf"^__main__.OwnError: own[\s\S]*{VERSIONS}"):
        result(job, services)


# The time


def test_when_the_time_is_up_the_job_runs_on(services: FakeServices, job: JobRecord) -> None:
    services.backend.runs(job.job_id)

    with pytest.raises(TimeoutError, match=rf"still RUNNING[\s\S]*attach\('{job.job_id}'\)") as up:
        result(job, services, timeout=0.05)

    assert isinstance(up.value, ResultTimeoutError)
    assert up.value.job_id == job.job_id
    assert services.journal.of("stop *", "remove *", "write *", "delete *") == []
    services.backend.returns(job.job_id, 42)
    assert result(job, services, timeout=0) == 42


def test_whoever_waits_can_be_told_to_stop(services: FakeServices, job: JobRecord) -> None:
    stop = threading.Event()

    def waiting(watch: Any) -> None:
        services.journal.before("wait *", lambda: (stop.set(), watch.wake()))

    with pytest.raises(WaitStopped):
        collect(job, services, stop=stop, waiting=waiting)


def test_a_job_that_was_cleaned_up_is_not_waited_for(
    services: FakeServices, job: JobRecord
) -> None:
    def clean_up() -> None:
        services.backend.loses(job.job_id)
        for name in services.store.names():
            services.store.delete(name)

    services.journal.before("wait *", clean_up)

    with pytest.raises(JobNotFoundError, match="neither an outcome nor a resource") as caught:
        result(job, services)

    assert caught.value.job_id == job.job_id


def test_a_job_whose_objects_go_while_we_read_them_was_cleaned_up(
    services: FakeServices, job: JobRecord
) -> None:
    services.backend.returns(job.job_id, 42)
    services.journal.before(
        "read */host-0.json",
        lambda: [services.store.delete(name) for name in services.store.names()],
    )

    with pytest.raises(JobNotFoundError, match="artifacts were removed"):
        result(job, services)


# The exception


def test_the_function_s_own_exception_is_raised_with_what_it_is_to_know(
    services: FakeServices, job: JobRecord
) -> None:
    error = FileNotFoundError(2, "No such file", "data.csv")
    error.add_note("the user's own note")
    services.backend.raises(job.job_id, error)

    with pytest.raises(FileNotFoundError) as caught:
        result(job, services)

    assert caught.value.filename == "data.csv"
    own, remote, where = caught.value.__notes__
    assert own == "the user's own note"
    assert remote.startswith("Remote traceback:\n")
    assert "phase 'call' of attempt 1 on host 0" in where


def test_raising_it_again_adds_neither_notes_nor_frames(
    services: FakeServices, job: JobRecord
) -> None:
    services.backend.raises(job.job_id, ValueError("no"))
    collected = collect(job, services)
    seen = []
    for _ in range(3):
        with pytest.raises(ValueError, match="no") as caught:
            collected.get()
        seen.append((len(caught.value.__notes__), len(list(caught.traceback))))

    assert len(set(seen)) == 1


@pytest.mark.parametrize(
    "error",
    [StopIteration("end"), ExceptionGroup("several", [ValueError(1), KeyError(2)]), TimeoutError()],
)
def test_odd_exceptions_come_back_too(
    services: FakeServices, job: JobRecord, error: Exception
) -> None:
    services.backend.raises(job.job_id, error)

    with pytest.raises(type(error)) as caught:
        result(job, services)

    assert repr(caught.value) == repr(error)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), GeneratorExit()])
def test_what_would_end_the_collecting_process_is_told_instead(
    services: FakeServices, job: JobRecord, error: BaseException
) -> None:
    services.backend.raises(job.job_id, error)

    with pytest.raises(RemoteError) as caught:
        result(job, services)

    assert caught.value.remote_type == type(error).__name__


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"cno_such_module\nSad\n(tR.", "no_such_module"),
        (b"not a pickle", "UnpicklingError"),
        (pickle.dumps("a text"), "str"),
    ],
)
def test_an_exception_whose_class_is_missing_is_told_by_type_message_and_traceback(
    services: FakeServices, job: JobRecord, data: bytes, why: str
) -> None:
    info = ErrorInfo("lib.Sad", "no luck", "Traceback of the job", pickled=inline(data))
    failed = {"succeeded": False, "reason": "exception", "phase": "call", "exit_code": 1}
    report(services.store, a_report(job.job_id, **failed, error=info))

    with pytest.raises(RemoteError, match=rf"^lib.Sad: no luck[\s\S]*{why}") as caught:
        result(job, services)

    error = caught.value
    assert (error.remote_type, error.remote_message) == ("lib.Sad", "no luck")
    assert error.remote_traceback == "Traceback of the job"
    assert error.job_id == job.job_id


def test_an_exception_that_did_not_pickle_is_told_in_the_same_way(
    services: FakeServices, job: JobRecord
) -> None:
    error = ValueError("no")
    error.lock = threading.Lock()  # type: ignore[attr-defined]
    services.backend.raises(job.job_id, error)

    with pytest.raises(RemoteError, match=r"^ValueError: no[\s\S]*pickle"):
        result(job, services)


def test_a_call_that_could_not_be_prepared_is_not_the_function_s_failure(
    services: FakeServices, job: JobRecord
) -> None:
    report_error(services.store, job.job_id, ModuleNotFoundError("No lib"), phase="unpickle")

    with pytest.raises(JobFailedError, match="No lib") as caught:
        result(job, services)

    assert any("phase 'unpickle'" in note for note in caught.value.__notes__)


@pytest.mark.parametrize(
    ("status", "kind"), [("failed", JobFailedError), ("cancelled", JobCancelledError)]
)
def test_an_end_without_any_report_is_an_error_of_the_job(
    services: FakeServices, job: JobRecord, status: Any, kind: type[JobFailedError]
) -> None:
    outcome = Outcome(job_id=job.job_id, status=status, message="Killed by signal 9.")
    services.store.write(JobObjects(job.job_id).outcome, encode(outcome))

    with pytest.raises(kind) as caught:
        result(job, services)

    assert caught.value.job_id == job.job_id


def test_a_failure_whose_report_is_gone_is_still_told(
    services: FakeServices, job: JobRecord
) -> None:
    services.backend.raises(job.job_id, ValueError("no"))
    services.store.delete(JobObjects(job.job_id).host_outcome(1, 0))

    with pytest.raises(JobFailedError, match="ValueError: no"):
        result(job, services)


# What somebody changed


def a_marked_job(services: FakeServices, job: JobRecord, path: Path, *, inside: bool) -> None:
    """Let the job's value, inside its report or beside it, be one that leaves a mark at *path*."""
    value = pickle.dumps(Mark(path))
    kept = inline(value)
    if not inside:
        name = JobObjects(job.job_id).host_value(1, 0)
        services.store.write(name, value)
        kept = replace(kept, inline=None, name=name)
    report(services.store, a_report(job.job_id, value=kept))


@pytest.mark.parametrize("inside", [True, False])
def test_what_is_vouched_for_is_unpickled(
    services: FakeServices, job: JobRecord, tmp_path: Path, inside: bool
) -> None:
    a_marked_job(services, job, tmp_path / "mark", inside=inside)

    result(job, services)

    assert (tmp_path / "mark").exists()  # Otherwise the tests below would show nothing.


@pytest.mark.parametrize("inside", [True, False])
def test_a_value_that_was_changed_is_refused_before_it_is_unpickled(
    services: FakeServices, job: JobRecord, tmp_path: Path, inside: bool
) -> None:
    a_marked_job(services, job, tmp_path / "mark", inside=inside)
    names = JobObjects(job.job_id)
    if inside:
        good = report_value(FakeServices.make().store, job.job_id, 42)
        services.store.delete(names.outcome)
        services.store.write(names.outcome, encode(good))
    else:
        other = pickle.dumps(Mark(tmp_path / "mark"), protocol=2)
        services.store.write(names.host_value(1, 0), other)

    with pytest.raises(IntegrityError, match="nothing of it was unpickled"):
        result(job, services)

    assert not (tmp_path / "mark").exists()


def test_a_digest_inside_a_report_is_checked_as_well(
    services: FakeServices, job: JobRecord, tmp_path: Path
) -> None:
    value = replace(inline(pickle.dumps(Mark(tmp_path / "mark"))), digest="0" * 64)
    report(services.store, a_report(job.job_id, value=value))

    with pytest.raises(IntegrityError, match="does not match its digest"):
        result(job, services)

    assert not (tmp_path / "mark").exists()


def test_an_exception_that_was_changed_is_refused_before_it_is_unpickled(
    services: FakeServices, job: JobRecord, tmp_path: Path
) -> None:
    services.backend.raises(job.job_id, ValueError("x" * 2 * INLINE_LIMIT))
    name = JobObjects(job.job_id).host_value(1, 0)
    services.store.write(name, pickle.dumps(Mark(tmp_path / "mark")))

    with pytest.raises(IntegrityError):
        result(job, services)

    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize("part", ["host_outcome", "host_value"])
def test_a_success_of_which_a_part_was_removed_is_damage_and_no_failure_of_the_job(
    services: FakeServices, job: JobRecord, part: str
) -> None:
    services.backend.returns(job.job_id, LARGE)
    services.store.delete(getattr(JobObjects(job.job_id), part)(1, 0))

    with pytest.raises(IntegrityError, match="a part of its result is missing"):
        result(job, services)


def test_a_success_without_a_value_is_no_success(services: FakeServices, job: JobRecord) -> None:
    report(services.store, a_report(job.job_id))

    with pytest.raises(IntegrityError, match="names no value"):
        result(job, services)


@pytest.mark.parametrize(
    ("data", "kind"), [(b'{"version": 99}', FutureRecordError), (b'{"job_id": 1}', RecordError)]
)
def test_a_report_that_cannot_be_read_is_told_by_its_name(
    services: FakeServices, job: JobRecord, data: bytes, kind: type[RecordError]
) -> None:
    names = JobObjects(job.job_id)
    services.store.write(names.host_outcome(1, 0), data)
    digest = hashlib.sha256(data).hexdigest()
    outcome = Outcome(job_id=job.job_id, status="succeeded", attempt=1, host=0, digest=digest)
    services.store.write(names.outcome, encode(outcome))

    with pytest.raises(RecordError, match=r"host-0\.json") as caught:
        result(job, services)

    assert type(caught.value) is kind


# In a bucket, where others can write


@pytest.fixture
def bucket(tmp_path: Path) -> FakeServices:
    return FakeServices.make(home=tmp_path / "home")


def finished(bucket: FakeServices, value: object, **fields: Any) -> JobRecord:
    """Return a job that returned *value*, as another process finds it."""
    job = bucket.job(**fields)
    bucket.backend.returns(job.job_id, value)
    return job


def read(job: JobRecord, services: FakeServices) -> bytes:
    return services.store.read(JobObjects(job.job_id).handle)


@pytest.mark.parametrize("value", [{"loss": 0.5}, LARGE, bytes(9 << 20)])
def test_what_was_signed_is_collected(bucket: FakeServices, value: object) -> None:
    job = finished(bucket, value)

    assert result(job, bucket, stored=read(job, bucket)) == value


def test_an_exception_that_was_signed_is_raised(bucket: FakeServices) -> None:
    job = bucket.job()
    bucket.backend.raises(job.job_id, ValueError("no"))

    with pytest.raises(ValueError, match="no"):
        result(job, bucket, stored=read(job, bucket))


def tamper(bucket: FakeServices, job: JobRecord, what: str, trap: Mark) -> None:
    """Do what somebody could do who can only write to the bucket, so that *trap* is unpickled."""
    store, names = bucket.store, JobObjects(job.job_id)
    evil = pickle.dumps(trap)
    forged = a_report(job.job_id, value=inline(evil))
    outcome = store.read(names.outcome)
    if what == "the value":
        store.write(names.host_value(1, 0), evil)
    elif what == "the report":
        store.write(names.host_outcome(1, 0), encode(forged))
    elif what == "the record":
        store.write(names.handle, read(job, bucket).replace(b'"hosts": 1', b'"hosts": 2'))
    else:
        store.delete(names.outcome)
        other = KeySigner(KeyFile(trap.path.parent / "theirs"))
        if what == "the outcome, unsigned":
            report(store, forged)
        elif what == "the outcome, signed by themselves":
            report(store, forged, key_signer=other)
        elif what == "the outcome, with the old signature":
            report(store, forged)
            made = json.loads(store.read(names.outcome))
            made["signature"] = json.loads(outcome)["signature"]
            store.write(names.outcome, json.dumps(made).encode())
        elif what == "the outcome, of another job":
            another = finished(bucket, LARGE, job_id="another")
            store.write(names.outcome, store.read(JobObjects(another.job_id).outcome))
            store.write(names.host_outcome(1, 0), encode(forged))
        else:
            raise AssertionError(what)


@pytest.mark.parametrize(
    ("what", "kind"),
    [
        ("the value", IntegrityError),
        ("the report", IntegrityError),
        ("the record", SignatureError),
        ("the outcome, unsigned", SignatureError),
        ("the outcome, signed by themselves", SignatureError),
        ("the outcome, with the old signature", SignatureError),
        ("the outcome, of another job", SignatureError),
    ],
)
def test_who_can_only_write_to_the_bucket_gets_nothing_unpickled(
    bucket: FakeServices, tmp_path: Path, what: str, kind: type[KineticError]
) -> None:
    job, trap = finished(bucket, LARGE), Mark(tmp_path / "trapped")
    tamper(bucket, job, what, trap)

    with pytest.raises(kind, match=job.job_id) as caught:
        result(job, bucket, stored=read(job, bucket))

    assert not trap.path.exists()
    assert caught.value.hint
    assert "unpickled" in caught.value.hint


@pytest.mark.parametrize("status", ["succeeded", "failed"])
def test_a_report_that_an_outcome_names_without_its_digest_is_not_believed(
    bucket: FakeServices, tmp_path: Path, status: str
) -> None:
    job, trap = bucket.job(), Mark(tmp_path / "trapped")
    error = ErrorInfo("ValueError", "no", "", pickled=inline(pickle.dumps(trap)))
    forged = a_report(
        job.job_id, succeeded=False, reason="exception", phase="call", exit_code=1, error=error
    )
    report(bucket.store, forged, key_signer=bucket.key_signer, status=status, digest=None)

    with pytest.raises((JobFailedError, IntegrityError)):
        result(job, bucket)

    assert not trap.path.exists()


def test_a_record_that_is_not_ours_is_refused_before_anybody_waits(
    bucket: FakeServices, tmp_path: Path
) -> None:
    job = bucket.job()
    stranger = replace(bucket, key_signer=KeySigner(KeyFile(tmp_path / "elsewhere")))

    with pytest.raises(SignatureError, match="no key"):
        result(job, stranger, stored=read(job, bucket))


def test_whoever_trusts_the_bucket_needs_no_key(bucket: FakeServices, tmp_path: Path) -> None:
    job = finished(bucket, 42)
    trusting = replace(
        bucket, key_signer=KeySigner(KeyFile(tmp_path / "elsewhere"), trusting=lambda: True)
    )

    assert result(job, trusting, stored=read(job, bucket)) == 42
    assert not (tmp_path / "elsewhere").exists()


def test_that_a_job_was_cancelled_is_believed_of_who_has_its_key_alone(
    bucket: FakeServices, tmp_path: Path
) -> None:
    job, trap = bucket.job(), Mark(tmp_path / "trapped")
    bucket.backend.dies(job.job_id, "It was killed.")
    error = ErrorInfo("ValueError", "no", "", pickled=inline(pickle.dumps(trap)))
    forged = a_report(job.job_id, succeeded=False, reason="exception", phase="call", error=error)
    report(bucket.store, forged, status="cancelled")
    stranger = replace(bucket, key_signer=KeySigner(KeyFile(tmp_path / "elsewhere")))

    for services in (bucket, stranger):
        with pytest.raises(SignatureError):
            result(job, services, stored=read(job, bucket))
    assert not trap.path.exists()
    bucket.store.delete(JobObjects(job.job_id).outcome)
    report(bucket.store, forged, status="cancelled", key_signer=bucket.key_signer)
    with pytest.raises(JobCancelledError):
        result(job, bucket, stored=read(job, bucket))


def test_what_we_write_of_a_job_that_vanished_is_signed(bucket: FakeServices) -> None:
    job = bucket.job()
    bucket.backend.dies(job.job_id, "It was killed.")

    with pytest.raises(JobFailedError, match="It was killed"):
        result(job, bucket)
    with pytest.raises(JobFailedError, match="It was killed"):
        result(job, bucket)


FORGERIES = {
    "cancelled": b'{"job_id": "%s", "status": "cancelled", "written_by": "client"}',
    "succeeded": b'{"job_id": "%s", "status": "succeeded", "attempt": 1, "host": 0}',
    "of the future": b'{"job_id": "%s", "version": 99}',
    "of another job": b'{"job_id": "x", "status": "failed"}',
    "no record": b"{",
    "too large": bytes(1 << 20),
}


def forge_outcome(bucket: FakeServices, job: JobRecord, what: str) -> None:
    data = FORGERIES[what].replace(b"%s", job.job_id.encode())
    bucket.store.write(JobObjects(job.job_id).outcome, data)


@pytest.mark.parametrize("what", FORGERIES)
def test_a_forged_outcome_ends_no_wait_for_a_job_that_runs_and_blocks_no_real_one(
    bucket: FakeServices, what: str
) -> None:
    job, told = bucket.job(), list[str]()
    bucket.backend.runs(job.job_id)
    forge_outcome(bucket, job, what)
    assert look(job, bucket).status is JobStatus.RUNNING
    bucket.journal.before(
        "wait *",
        lambda: bucket.backend.prints(job.job_id, "nothing is new"),
        lambda: bucket.backend.returns(job.job_id, 42),
    )

    assert result(job, bucket, warn=told.append) == 42

    assert len(told) == 1
    assert f"{job.job_id}/outcome.json" in told[0]
    assert find_outcome(bucket.store, job.job_id, verify=bucket.verify) is not None


@pytest.mark.parametrize("what", FORGERIES)
def test_a_job_is_cancelled_over_a_forged_outcome(bucket: FakeServices, what: str) -> None:
    job = bucket.job()
    bucket.backend.runs(job.job_id)
    forge_outcome(bucket, job, what)

    cancel(job, bucket, timeout=1, poll_interval=0.01)

    with pytest.raises(JobCancelledError):
        result(job, bucket)


def test_what_reports_tell_is_written_over_a_forged_outcome_and_nothing_else(
    bucket: FakeServices, tmp_path: Path
) -> None:
    told, silent = bucket.job(job_id="told"), bucket.job(job_id="silent")
    for job in (told, silent):
        bucket.backend.dies(job.job_id, "It was killed.")
        forge_outcome(bucket, job, "cancelled")
    outcome = Outcome(job_id="told", status="failed", attempt=1, host=0, digest="0" * 64)
    reported = replace(bucket, backend=Reported(bucket, outcome))
    stranger = replace(
        reported, key_signer=KeySigner(KeyFile(tmp_path / "elsewhere"), trusting=lambda: False)
    )

    with pytest.raises(SignatureError, match=r"outcome\.json"):
        look(silent, bucket)
    assert look(told, stranger).status is JobStatus.FAILED
    assert bucket.journal.of("write */outcome.json") == [
        "write told/outcome.json",
        "write silent/outcome.json",
    ]
    assert look(told, reported).outcome == replace(
        outcome, signature=look(told, bucket).outcome.signature
    )


class Reported:
    """A backend that knows from reports how a job ended."""

    def __init__(self, services: FakeServices, outcome: Outcome) -> None:
        self._backend = services.backend
        self._outcome = outcome

    def unreported(self, *_: object) -> Outcome:
        return self._outcome

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)


class Refused(KineticError):
    """What a cluster says that does not permit to look."""


class Cluster(FakeBackend):
    """A backend that is asked over a network."""

    def lives_here(self, record: JobRecord) -> bool:
        return False


def test_a_wait_goes_on_while_the_backend_is_not_reached_and_ends_with_its_time(
    services: FakeServices,
) -> None:
    services = replace(services, backend=Cluster(services.store, services.journal))
    job, told = services.job(), list[str]()
    away = raising(UnavailableError("The cluster is not reached."))
    services.journal.before("observe *", away, away)

    def back() -> object:
        services.backend.returns(job.job_id, 42)

    services.journal.before("observe *", back)
    assert result(job, services, warn=told.append) == 42
    assert told == [
        f"Job {job.job_id}: The cluster is not reached. The wait for job {job.job_id} goes on."
    ]

    lost = services.job(job_id="lost")
    services.journal.before("observe lost", *[away] * 1000)
    with pytest.raises(ResultTimeoutError, match="The cluster is not reached"):
        result(lost, services, timeout=0.3)
    assert find_outcome(services.store, "lost") is None


def test_a_watch_that_is_not_reached_is_told_once_and_neither_spins_nor_hides_the_time_out(
    services: FakeServices,
) -> None:
    services = replace(services, backend=Cluster(services.store, services.journal))
    job, told = services.job(), list[str]()
    away = raising(UnavailableError("The cluster is not reached."))
    services.journal.before("wait *", *[away] * 1000)
    # Asked at the first look; and again when the time is up.
    services.journal.before("explain *", lambda: None, *[away] * 1000)

    with pytest.raises(ResultTimeoutError, match="is still PENDING"):
        result(job, services, timeout=0.5, warn=told.append)

    assert len(services.journal.of("wait *")) < 10
    assert len(told) == 1


@pytest.mark.parametrize("place", ["observe *", "wait *", "read */outcome.json"])
def test_a_login_that_expires_during_waits_is_asked_for_once_and_they_go_on(
    services: FakeServices, place: str
) -> None:
    services = replace(services, backend=Cluster(services.store, services.journal))
    jobs, told = [services.job(job_id=each) for each in ("one", "two")], list[str]()
    kind = CredentialsError if place.startswith("read") else LoginRequiredError
    login = f"Log in with: sso login {place}"
    tokens = [raising(kind(f"Rejected, {n}.", hint=login)) for n in range(3)]
    for job in jobs:
        news = partial(services.backend.prints, job.job_id, "news")
        ends = partial(services.backend.returns, job.job_id, 42)
        if place == "wait *":
            services.journal.before(place, news, *tokens, ends)
        else:  # The first look succeeds.
            services.journal.before(place, str, *tokens)
            services.journal.before("wait *", news, ends)

        assert result(job, services, warn=told.append) == 42
    (line,) = told
    assert line.endswith(f"{login}. The wait for job {jobs[0].job_id} goes on.")


def test_a_wait_does_not_begin_without_a_login(services: FakeServices) -> None:
    services = replace(services, backend=Cluster(services.store, services.journal))
    job = services.job()
    services.journal.refuse("observe *", LoginRequiredError("No.", hint="Log in with: sso login"))

    with pytest.raises(LoginRequiredError, match="sso login"):
        result(job, services)


@pytest.mark.parametrize("asked", ["observe", "explain", "wait"])
def test_a_backend_that_refuses_ends_the_wait_naming_job_and_cause_and_nothing_is_written(
    services: FakeServices, job: JobRecord, asked: str
) -> None:
    services.backend.dies(job.job_id, "Gone.") if asked == "explain" else None
    services.journal.refuse(f"{asked} *", Refused("Not permitted (403)."))

    with pytest.raises(Refused, match="Not permitted") as caught:
        result(job, services)

    assert job.job_id in str(caught.value)
    assert any(f"attach({job.job_id!r})" in note for note in caught.value.__notes__)
    assert find_outcome(services.store, job.job_id) is None


@pytest.mark.parametrize("status", [JobStatus.FAILED, JobStatus.NOT_FOUND])
def test_a_job_that_nobody_heard_of_fails_for_now_and_gives_its_value_when_it_is_back(
    bucket: FakeServices, status: JobStatus
) -> None:
    job = bucket.job()

    class Lost:
        name = "lost"

        def observe(self, _: JobRecord) -> Observation:
            return Observation(status, "Not heard of since noon.", lost=True)

        def lives_here(self, _: JobRecord) -> bool:
            return False

        def explain(self, _: JobRecord, seen: Observation) -> Explanation:
            return Explanation(seen.reason)

        @contextmanager
        def watch(self, _: object) -> Iterator[object]:
            yield self

        def wait(self, timeout: float | None) -> None:
            assert timeout is not None

        unreported = bucket.backend.unreported
        release = bucket.backend.release

    away = replace(bucket, backend=cast("Any", Lost()))
    with pytest.raises(JobFailedError, match="since noon") as caught:
        collect(job, away, timeout=0)
    assert "call result() again" in str(caught.value.hint)
    assert find_outcome(bucket.store, job.job_id) is None

    bucket.backend.returns(job.job_id, 42)
    assert result(job, away) == 42
