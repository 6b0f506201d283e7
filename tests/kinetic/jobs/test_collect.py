"""What the caller of a job gets: the value or the exception, through outages, and nothing that was forged."""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import pickle
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import cloudpickle
import pytest

from kinetic.backends.backend import Ending, Observation
from kinetic.errors import (
    CredentialsError,
    IntegrityError,
    JobCancelledError,
    JobFailedError,
    JobKilledError,
    JobNotFoundError,
    KineticError,
    LoginRequiredError,
    NoValueError,
    OutOfMemoryError,
    PreparationError,
    RecordError,
    RemoteError,
    ResultTimeoutError,
    ResultUnreadableError,
    SignatureError,
    StoreUnavailableError,
    TimeLimitError,
    UnavailableError,
)
from kinetic.job_status import JobStatus
from kinetic.jobs.collect import collect
from kinetic.jobs.logs import LiveLog, ends
from kinetic.jobs.records import find_outcome
from kinetic.jobs.status import look
from kinetic.jobs.stop import cancel
from kinetic.settings.keys import KeyFile, KeySigner
from kinetic_payload.layout import INLINE_LIMIT, JobObjects
from kinetic_payload.records.encode import encode
from kinetic_payload.records.host_outcome import ErrorInfo, Pickled
from kinetic_payload.records.job import JobRecord
from kinetic_payload.records.outcome import Outcome
from kinetic_servers.fakes import FakeBackend, FakeServices, a_report, raising, report, report_error

LARGE = bytes(2 * INLINE_LIMIT)


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


def failed_report(job_id: str, **more: Any) -> Any:
    usual = {"succeeded": False, "reason": "exception", "phase": "call", "exit_code": 1}
    return a_report(job_id, **{**usual, **more})


# The value


OTHER_PYTHON = f"3.{sys.version_info[1] + 1}.2"
VERSIONS = f"written by Python {OTHER_PYTHON[:-2]} and read by Python 3.{sys.version_info[1]}"
MISSING = b"cno_such_module\nThing\n."


@pytest.mark.parametrize(
    ("data", "python", "why", "hint"),
    [
        (MISSING, None, "no_such_module", "Install what it needs"),
        (MISSING, OTHER_PYTHON, VERSIONS, f"from Python {OTHER_PYTHON[:-2]}."),
        (cloudpickle.dumps(lambda: 1), OTHER_PYTHON, VERSIONS, f"from Python {OTHER_PYTHON[:-2]}."),
    ],
)
def test_a_value_that_cannot_be_unpickled_here_is_kept(
    services: FakeServices, job: JobRecord, data: bytes, python: str | None, why: str, hint: str
) -> None:
    more = {"python": python} if python else {}
    report(services.store, a_report(job.job_id, value=inline(data), **more))
    before = services.store.names()

    with pytest.raises(ResultUnreadableError, match=why) as caught:
        result(job, services)

    assert hint in str(caught.value.hint)
    assert services.store.names() == before


def test_plain_values_of_another_python_are_returned(
    services: FakeServices, job: JobRecord
) -> None:
    value = inline(pickle.dumps({"loss": 0.5}))
    report(services.store, a_report(job.job_id, value=value, python=OTHER_PYTHON))

    assert result(job, services) == {"loss": 0.5}


# The failure: what ended the job → what the caller gets

End = Callable[[FakeServices, str], object]


def raised(error: BaseException) -> End:
    return lambda services, job_id: services.backend.raises(job_id, error)


def reported(data: bytes, python: str = "") -> End:
    """Return an ending with an exception of which only its pickle, *data*, could be an obstacle."""
    info = ErrorInfo("lib.Sad", "no luck", "Traceback of the job", pickled=inline(data))
    return lambda services, job_id: report(
        services.store, failed_report(job_id, error=info, python=python)
    )


def unpicklable() -> Exception:
    error = ValueError("no")
    error.lock = threading.Lock()  # type: ignore[attr-defined]
    return error


def ended_without_report(status: Any) -> End:
    return lambda services, job_id: services.store.write(
        JobObjects(job_id).outcome,
        encode(Outcome(job_id=job_id, status=status, message="Killed by signal 9.")),
    )


def ended_by(reason: str, **more: Any) -> End:
    return lambda services, job_id: report(
        services.store,
        failed_report(job_id, reason=reason, message=f"It was ended by {reason}.", **more),
    )


def report_removed(services: FakeServices, job_id: str) -> None:
    services.backend.raises(job_id, ValueError("no"))
    services.store.delete(JobObjects(job_id).host_outcome(1, 0))


def not_prepared(services: FakeServices, job_id: str) -> None:
    report_error(services.store, job_id, ModuleNotFoundError("No lib"), phase="unpickle")


def own_error() -> bytes:
    class OwnError(Exception):
        def __str__(self) -> str:
            return "own"

    return cloudpickle.dumps(OwnError())


GROUP = ExceptionGroup("several", [ValueError(1), KeyError(2)])


@pytest.mark.parametrize(
    ("end", "kind", "words"),
    [
        (raised(StopIteration("end")), StopIteration, "^end"),
        (raised(GROUP), ExceptionGroup, "several"),
        (raised(TimeoutError("theirs")), TimeoutError, "^theirs"),
        # These would end the process that collects them.
        (raised(KeyboardInterrupt()), RemoteError, "^KeyboardInterrupt"),
        (raised(GeneratorExit()), RemoteError, "^GeneratorExit"),
        (raised(unpicklable()), RemoteError, r"^ValueError: no[\s\S]*pickle"),
        (reported(b"cno_such_module\nSad\n(tR."), RemoteError, r"^lib.Sad: no luck[\s\S]*no_such_module"),
        (reported(b"not a pickle"), RemoteError, r"^lib.Sad: no luck[\s\S]*UnpicklingError"),
        (reported(pickle.dumps("a text")), RemoteError, r"^lib.Sad: no luck[\s\S]*str"),
        (reported(own_error(), OTHER_PYTHON), RemoteError, rf"^lib.Sad: no luck[\s\S]*{VERSIONS}"),
        (not_prepared, PreparationError, "No lib"),
        (ended_by("timeout"), TimeLimitError, "ended by timeout"),
        (ended_by("killed", signal=11), JobKilledError, "ended by killed"),
        (ended_by("killed", out_of_memory=True), OutOfMemoryError, "ended by killed"),
        (ended_by("exited"), NoValueError, "ended by exited"),
        (ended_without_report("failed"), JobFailedError, "Killed by signal 9"),
        (ended_without_report("cancelled"), JobCancelledError, "was cancelled"),
        (report_removed, JobFailedError, "ValueError: no"),
    ],
)  # fmt: skip
def test_each_failure_is_raised_as_an_error_that_explains_it(
    services: FakeServices, job: JobRecord, end: End, kind: type[BaseException], words: str
) -> None:
    end(services, job.job_id)

    with pytest.raises(kind, match=words) as caught:
        result(job, services)

    assert type(caught.value) is kind
    assert getattr(caught.value, "job_id", None) == job.job_id
    if isinstance(caught.value, JobKilledError):
        assert caught.value.signal == 11
    if isinstance(caught.value, PreparationError):
        assert caught.value.phase == "unpickle"
    if isinstance(caught.value, RemoteError):
        assert caught.value.remote_type in str(caught.value)
        assert caught.value.remote_traceback in "\n".join(caught.value.__notes__)
    if end is not_prepared:
        assert any("phase 'unpickle'" in note for note in caught.value.__notes__)


def test_the_functions_exception_is_raised_again_with_the_same_notes_and_frames(
    services: FakeServices, job: JobRecord
) -> None:
    error = FileNotFoundError(2, "No such file", "data.csv")
    error.add_note("the user's own note")
    services.backend.raises(job.job_id, error)
    collected = collect(job, services)
    seen = set()
    for _ in range(3):
        with pytest.raises(FileNotFoundError) as caught:
            collected.get()
        seen.add((len(caught.value.__notes__), len(list(caught.traceback))))

    assert len(seen) == 1
    assert caught.value.filename == "data.csv"
    own, remote, where = caught.value.__notes__
    assert own == "the user's own note"
    assert remote.startswith("Remote traceback:\n")
    assert "phase 'call' of attempt 1 on host 0" in where


@dataclass(frozen=True)
class Frozen(Exception):
    """Refuses attributes, and has notes of its own kind."""

    code: int

    def __getattr__(self, name: str) -> Any:
        raise KeyError(name)


def test_an_exception_that_refuses_attributes_is_raised_with_its_notes(
    services: FakeServices, job: JobRecord
) -> None:
    services.backend.raises(job.job_id, Frozen(3))

    with pytest.raises(Frozen) as caught:
        result(job, services)

    assert caught.value.code == 3
    assert "phase 'call'" in caught.value.__notes__[-1]


# The wait


def test_the_wait_lasts_until_the_end_and_reports_each_status_once(
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
    # An outage hides neither the deadline nor the end of a job of this machine.
    assert services.journal.of("limited *")[0] == "limited 10"


def test_an_error_of_a_status_callback_is_logged_and_the_result_returned(
    services: FakeServices, job: JobRecord, caplog: pytest.LogCaptureFixture
) -> None:
    services.backend.returns(job.job_id, 42)

    with caplog.at_level(logging.ERROR, "kinetic"):
        assert result(job, services, on_status_change=lambda _: 1 / 0) == 42

    assert "division by zero" in caplog.text


@pytest.mark.parametrize(
    ("moment", "resource", "words"),
    [
        ("wait *", "lost", "neither an outcome nor a resource"),
        ("wait *", "dead", "artifacts were removed"),
        ("read */host-0.json", "lost", "artifacts were removed"),
    ],
)
def test_a_job_that_is_cleaned_up_meanwhile_is_not_found(
    services: FakeServices, job: JobRecord, moment: str, resource: str, words: str
) -> None:
    def clean_up() -> None:
        services.backend.dies(job.job_id, "It was killed.")
        if resource == "lost":
            services.backend.loses(job.job_id)
        for name in services.store.names():
            services.store.delete(name)

    if moment.startswith("read"):
        services.backend.returns(job.job_id, 42)
    services.journal.before(moment, clean_up)

    with pytest.raises(JobNotFoundError, match=words) as caught:
        result(job, services, timeout=30)

    assert caught.value.job_id == job.job_id


# The log


def test_every_line_is_passed_on_before_the_value_is_returned(
    services: FakeServices, job: JobRecord
) -> None:
    # The login expired before the first line.
    expired = raising(LoginRequiredError("The session has ended.", hint="Run `sso login`."))
    services.journal.before("log_lines *", expired)
    lines, warnings = list[str](), list[str]()
    services.backend.prints(job.job_id, "first")

    def end() -> None:
        services.backend.prints(job.job_id, "last")
        services.backend.returns(job.job_id, 42)

    services.journal.before("wait *", end)

    log = {"on_line": lambda line: lines.append(line.text), "warn": warnings.append}
    assert result(job, services, **log) == 42
    assert lines == ["first", "last"]
    assert warnings == []


def test_a_log_whose_end_does_not_arrive_is_abandoned_with_a_warning(
    services: FakeServices, job: JobRecord
) -> None:
    shown, warnings = threading.Event(), []
    services.backend.prints(job.job_id, "hello")
    services.backend.returns(job.job_id, 42)

    with LiveLog(job, services, lambda line: shown.wait(60), warnings.append, idle_seconds=0.01):
        pass
    shown.set()

    [warning] = warnings
    assert warning.endswith(f"kinetic jobs logs {job.job_id}")


@pytest.mark.parametrize(("done", "ended"), [([1, 2, 3], True), ([1, 2, 2], False)])
def test_a_log_that_makes_progress_is_waited_for(done: list[int], ended: bool) -> None:
    class Slow:
        rounds = 0

        def is_alive(self) -> bool:
            return self.rounds < 3

        def join(self, timeout: float) -> None:
            self.rounds += 1

    slow = Slow()

    assert ends(cast("Any", slow), lambda: done[slow.rounds], idle_seconds=10) is ended


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


@pytest.mark.parametrize("broken", ["the log", "the callback"])
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


# Outages


def test_an_outage_while_the_result_is_fetched_is_reported_once_and_paused_for(
    services: FakeServices, job: JobRecord
) -> None:
    services.backend.returns(job.job_id, LARGE)
    untrusted = raising(StoreUnavailableError("its certificate is not trusted"))
    services.journal.before("read *attempt*", *[untrusted] * 5000)
    warnings: list[str] = []

    with pytest.raises(ResultTimeoutError, match="its certificate is not trusted"):
        result(job, services, timeout=2, warn=warnings.append)

    assert len(warnings) == 1
    assert len(services.journal.of("read *attempt*")) < 10


class Cluster(FakeBackend):
    """A backend that is reached over a network."""

    def forward(self, record: JobRecord) -> Any:
        return self


@pytest.fixture
def remote(services: FakeServices) -> FakeServices:
    return replace(services, backend=Cluster(services.store, services.journal))


AWAY = raising(UnavailableError("The cluster is not reached."))


def test_the_wait_outlasts_an_unreachable_backend_until_its_timeout(remote: FakeServices) -> None:
    job, warnings = remote.job(), list[str]()
    back = partial(remote.backend.returns, job.job_id, 42)
    remote.journal.before("observe *", AWAY, AWAY, back)

    assert result(job, remote, warn=warnings.append) == 42
    assert warnings == [
        f"Job {job.job_id}: The cluster is not reached. The wait for job {job.job_id} goes on."
    ]

    lost = remote.job(job_id="lost")
    remote.journal.before("observe lost", *[AWAY] * 1000)
    with pytest.raises(ResultTimeoutError, match="The cluster is not reached"):
        result(lost, remote, timeout=1)
    assert find_outcome(remote.store, "lost") is None


@pytest.mark.parametrize("place", ["observe *", "wait *", "read */outcome.json"])
def test_a_login_that_expires_during_waits_is_requested_once_and_they_go_on(
    remote: FakeServices, place: str
) -> None:
    jobs, warnings = [remote.job(job_id=each) for each in ("one", "two")], list[str]()
    kind = CredentialsError if place.startswith("read") else LoginRequiredError
    login = f"Log in with: sso login {place}"
    tokens = [raising(kind(f"Rejected, {n}.", hint=login)) for n in range(2)]
    for job in jobs:
        news = partial(remote.backend.prints, job.job_id, "news")
        returns = partial(remote.backend.returns, job.job_id, 42)
        if place == "wait *":
            remote.journal.before(place, news, *tokens, returns)
        else:  # The first look succeeds.
            remote.journal.before(place, str, *tokens)
            remote.journal.before("wait *", news, returns)

        assert result(job, remote, warn=warnings.append) == 42
    (line,) = warnings
    assert line.endswith(f"{login}. The wait for job {jobs[0].job_id} goes on.")


def test_a_wait_does_not_begin_without_a_login(remote: FakeServices) -> None:
    job = remote.job()
    remote.journal.refuse("observe *", LoginRequiredError("No.", hint="Log in with: sso login"))

    with pytest.raises(LoginRequiredError, match="sso login"):
        result(job, remote, timeout=30)


@pytest.mark.parametrize("call", ["observe", "explain", "wait"])
def test_a_refusal_of_the_backend_ends_the_wait_and_writes_nothing(
    services: FakeServices, job: JobRecord, call: str
) -> None:
    if call == "explain":
        services.backend.dies(job.job_id, "Gone.")
    services.journal.refuse(f"{call} *", KineticError("Not permitted (403)."))

    with pytest.raises(KineticError, match="Not permitted") as caught:
        result(job, services)

    assert job.job_id in str(caught.value)
    assert any(f"attach({job.job_id!r})" in note for note in caught.value.__notes__)
    assert find_outcome(services.store, job.job_id) is None


def test_a_wait_passes_on_why_the_job_does_not_run_yet(services: FakeServices) -> None:
    class Full(Cluster):
        def observe(self, record: JobRecord) -> Observation:
            return Observation(JobStatus.PENDING, "No node is free.")

    full = replace(services, backend=Full(services.store, services.journal))
    reasons: list[str] = []
    with pytest.raises(ResultTimeoutError, match="No node"):
        collect(full.job(), full, timeout=0.01, on_reason=reasons.append)
    assert reasons == ["No node is free."]


@pytest.mark.parametrize("status", [JobStatus.FAILED, JobStatus.NOT_FOUND])
def test_a_silent_supervisor_fails_the_wait_but_not_the_job(
    services: FakeServices, status: JobStatus
) -> None:
    class Lost(Cluster):
        def observe(self, record: JobRecord) -> Observation:
            return Observation(status, "Not heard of since noon.", ending=Ending.LOST)

    away = replace(services, backend=Lost(services.store, services.journal))
    job = away.job()
    with pytest.raises(JobFailedError, match="since noon") as caught:
        collect(job, away, timeout=0)
    assert "call result() again" in str(caught.value.hint)
    assert find_outcome(away.store, job.job_id) is None

    away.backend.returns(job.job_id, 42)
    assert result(job, away) == 42


# Damage and forgery


class Trap:
    """An object whose pickle writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


@pytest.fixture
def trap(tmp_path: Path) -> Trap:
    return Trap(tmp_path / "trapped")


@pytest.fixture
def bucket(tmp_path: Path) -> FakeServices:
    """Services over a bucket, where other users can write: its jobs sign their records."""
    return FakeServices.make(home=tmp_path / "home")


def stranger_to(bucket: FakeServices, folder: Path, **trust: Any) -> FakeServices:
    """Return services of another user, who does not have the key."""
    return replace(bucket, key_signer=KeySigner(KeyFile(folder / "elsewhere"), **trust))


def finished(bucket: FakeServices, value: object, **fields: Any) -> JobRecord:
    job = bucket.job(**fields)
    bucket.backend.returns(job.job_id, value)
    return job


def read(job: JobRecord, services: FakeServices) -> bytes:
    return services.store.read(JobObjects(job.job_id).handle)


def tamper(services: FakeServices, job: JobRecord, part: str, trap: Trap) -> None:
    """Change *part* of a job that succeeded, as any writer of the store can, so that *trap* may be unpickled."""
    store, names = services.store, JobObjects(job.job_id)
    evil = pickle.dumps(trap)
    forged = a_report(job.job_id, value=inline(evil))
    outcome = store.read(names.outcome)
    if part == "value":
        store.write(names.host_value(1, 0), evil)
        return
    if part == "report":
        store.write(names.host_outcome(1, 0), encode(forged))
        return
    if part == "record":
        store.write(names.handle, read(job, services).replace(b'"hosts": 1', b'"hosts": 2'))
        return
    store.delete(names.outcome)
    if part == "unsigned outcome":
        report(store, forged)
    elif part == "outcome with another key":
        report(store, forged, key_signer=KeySigner(KeyFile(trap.path.parent / "theirs")))
    elif part == "outcome with its old signature":
        report(store, forged)
        made = json.loads(store.read(names.outcome))
        made["signature"] = json.loads(outcome)["signature"]
        store.write(names.outcome, json.dumps(made).encode())
    elif part == "outcome of another job":
        another = finished(services, LARGE, job_id="another")
        store.write(names.outcome, store.read(JobObjects(another.job_id).outcome))
        store.write(names.host_outcome(1, 0), encode(forged))
    elif part == "digest in the report":
        wrong = replace(inline(evil), digest="0" * 64)
        report(store, a_report(job.job_id, value=wrong), key_signer=services.key_signer)
    elif part == "exception":
        store.delete(names.host_value(1, 0))
        services.backend.raises(job.job_id, ValueError("x" * 2 * INLINE_LIMIT))
        store.write(names.host_value(1, 0), evil)
    else:
        raise AssertionError(part)


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        ("value", IntegrityError),
        ("report", IntegrityError),
        ("digest in the report", IntegrityError),
        ("exception", IntegrityError),
        ("record", SignatureError),
        ("unsigned outcome", SignatureError),
        ("outcome with another key", SignatureError),
        ("outcome with its old signature", SignatureError),
        ("outcome of another job", SignatureError),
    ],
)
def test_nothing_is_unpickled_that_the_job_did_not_write(
    bucket: FakeServices, services: FakeServices, trap: Trap, part: str, kind: type[KineticError]
) -> None:
    # Without a key, digests protect what an outcome names.
    places = [bucket, services] if kind is IntegrityError else [bucket]
    for place in places:
        job = finished(place, LARGE)
        tamper(place, job, part, trap)

        with pytest.raises(kind) as caught:
            result(job, place, stored=read(job, place))

        assert not trap.path.exists()
        if part not in ("digest in the report", "exception"):
            assert job.job_id in str(caught.value)
            assert "unpickled" in str(caught.value.hint)


@pytest.mark.parametrize("value", [{"loss": 0.5}, LARGE, bytes(9 << 20)])
def test_a_signed_value_is_collected(bucket: FakeServices, trap: Trap, value: object) -> None:
    job = finished(bucket, value)
    assert result(job, bucket, stored=read(job, bucket)) == value

    # Otherwise the tests of forgery would prove nothing.
    trapped = bucket.job(job_id="trapped")
    forged = a_report("trapped", value=inline(pickle.dumps(trap)))
    report(bucket.store, forged, key_signer=bucket.key_signer)
    result(trapped, bucket)
    assert trap.path.exists()


@pytest.mark.parametrize("status", ["succeeded", "failed"])
def test_a_report_is_not_trusted_if_the_outcome_has_no_digest_of_it(
    bucket: FakeServices, trap: Trap, status: str
) -> None:
    job = bucket.job()
    error = ErrorInfo("ValueError", "no", "", pickled=inline(pickle.dumps(trap)))
    forged = failed_report(job.job_id, error=error)
    report(bucket.store, forged, key_signer=bucket.key_signer, status=status, digest=None)

    with pytest.raises((JobFailedError, IntegrityError)):
        result(job, bucket)

    assert not trap.path.exists()


@pytest.mark.parametrize("part", ["host_outcome", "host_value", None])
def test_a_success_with_a_missing_part_is_damaged_and_not_failed(
    services: FakeServices, job: JobRecord, part: str | None
) -> None:
    if part is None:
        report(services.store, a_report(job.job_id))
    else:
        services.backend.returns(job.job_id, LARGE)
        services.store.delete(getattr(JobObjects(job.job_id), part)(1, 0))

    with pytest.raises(IntegrityError, match=r"a part of its result is missing|names no value"):
        result(job, services)


def test_an_unreadable_report_is_named(services: FakeServices, job: JobRecord) -> None:
    names = JobObjects(job.job_id)
    services.store.write(names.host_outcome(1, 0), b"{}")
    digest = hashlib.sha256(b"{}").hexdigest()
    outcome = Outcome(job_id=job.job_id, status="succeeded", attempt=1, host=0, digest=digest)
    services.store.write(names.outcome, encode(outcome))

    with pytest.raises(RecordError, match=r"host-0\.json"):
        result(job, services)


def test_a_record_of_another_user_is_refused_before_the_wait_unless_the_bucket_is_trusted(
    bucket: FakeServices, tmp_path: Path
) -> None:
    job = bucket.job()
    with pytest.raises(SignatureError, match="no key"):
        result(job, stranger_to(bucket, tmp_path), stored=read(job, bucket))

    bucket.backend.returns(job.job_id, 42)
    trusting = stranger_to(bucket, tmp_path, trusting=lambda: True)
    assert result(job, trusting, stored=read(job, bucket)) == 42
    assert not (tmp_path / "elsewhere").exists()


FORGERIES = {
    "cancelled": b'{"job_id": "%s", "status": "cancelled", "written_by": "client"}',
    "succeeded": b'{"job_id": "%s", "status": "succeeded", "attempt": 1, "host": 0}',
    "of the future": b'{"job_id": "%s", "version": 99}',
    "of another job": b'{"job_id": "x", "status": "failed"}',
    "no record": b"{",
    "too large": bytes(1 << 20),
}


def forge_outcome(bucket: FakeServices, job: JobRecord, forgery: str) -> None:
    data = FORGERIES[forgery].replace(b"%s", job.job_id.encode())
    bucket.store.write(JobObjects(job.job_id).outcome, data)


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_outcome_ends_no_wait_and_prevents_neither_a_result_nor_a_cancellation(
    bucket: FakeServices, forgery: str
) -> None:
    job, cancelled = bucket.job(), bucket.job(job_id="cancelled")
    for each in (job, cancelled):
        bucket.backend.runs(each.job_id)
        forge_outcome(bucket, each, forgery)
        assert look(each, bucket).status is JobStatus.RUNNING
    warnings = list[str]()
    bucket.journal.before(
        "wait *",
        lambda: bucket.backend.prints(job.job_id, "nothing is new"),
        lambda: bucket.backend.returns(job.job_id, 42),
    )

    assert result(job, bucket, warn=warnings.append) == 42
    cancel(cancelled, bucket, timeout=1, poll_interval=0.01)

    assert len(warnings) == 1
    assert f"{job.job_id}/outcome.json" in warnings[0]
    assert find_outcome(bucket.store, job.job_id, verify=bucket.verify) is not None
    with pytest.raises(JobCancelledError):
        result(cancelled, bucket)


def test_an_outcome_from_reports_replaces_a_forged_one_and_any_other_does_not(
    bucket: FakeServices, tmp_path: Path
) -> None:
    known, silent = bucket.job(job_id="known"), bucket.job(job_id="silent")
    name = JobObjects("known").host_outcome(1, 0)
    signed = bucket.sign(encode(failed_report("known")), name)
    bucket.store.write(name, signed)
    for job in (known, silent):
        bucket.backend.dies(job.job_id, "It was killed.")
        forge_outcome(bucket, job, "cancelled")

    with pytest.raises(SignatureError, match=r"outcome\.json"):
        look(silent, bucket)
    with pytest.raises(SignatureError):  # Without the key, no report counts either.
        look(known, stranger_to(bucket, tmp_path))
    assert bucket.journal.of("write known/outcome.json") == ["write known/outcome.json"]  # forged
    assert look(known, bucket).outcome.digest == hashlib.sha256(signed).hexdigest()
    assert find_outcome(bucket.store, "known", verify=bucket.verify) is not None
