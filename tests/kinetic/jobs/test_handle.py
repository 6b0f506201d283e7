from __future__ import annotations

import json
import logging
import pickle
import threading
import warnings
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kinetic.errors import (
    InvalidRequestError,
    JobError,
    JobNotFoundError,
    RecordError,
)
from kinetic.job_status import JobStatus
from kinetic.jobs.collect import collect
from kinetic.jobs.handle import JobHandle, handle_of
from kinetic.jobs.outages import WaitStopped
from kinetic.jobs.records import find_record
from kinetic_payload.errors import LoginRequiredError
from kinetic_payload.layout import INLINE_LIMIT, JobObjects
from kinetic_payload.records.encode import encode
from kinetic_payload.stores.folder.store import FolderStore
from kinetic_servers.fakes import FakeServices, a_record, connected, raising, report_value
from kinetic_servers.launches import job_ids_of

HANDLE = handle_of(a_record())


@pytest.fixture
def job(services: FakeServices) -> JobHandle:
    return connected(handle_of(services.job()), services)


@pytest.mark.parametrize("ask", [JobHandle.status, JobHandle.outcome])
def test_a_look_gives_up_after_ten_seconds(
    services: FakeServices, job: JobHandle, ask: Callable[[JobHandle], object]
) -> None:
    ask(job)

    assert services.journal.of("limited *") == ["limited 10"]


# What a handle is


def test_a_handle_survives_json_of_older_and_newer_versions() -> None:
    written = json.loads(json.dumps(HANDLE.to_dict()))

    assert list(written) == [field.name for field in fields(a_record())][:17]
    assert JobHandle.from_dict(written | {"colour": "blue"}) == HANDLE
    for name in ("group_id", "group_kind", "group_index", "debug"):
        del written[name]
    assert JobHandle.from_dict(written) == HANDLE


@pytest.mark.parametrize(
    "change",
    [{"k8s_name": None}, {"job_id": 7}, {"group_index": "1"}, {"debug": "no"}, {"zone": ...}],
)
def test_a_handle_with_a_wrong_or_missing_field_is_refused_with_its_name(change: Any) -> None:
    written = {k: v for k, v in (HANDLE.to_dict() | change).items() if v is not ...}

    with pytest.raises(RecordError, match=next(iter(change))):
        JobHandle.from_dict(written)


def test_a_handle_is_shown_in_one_line_and_in_notebooks_escaped_without_a_request(
    services: FakeServices,
) -> None:
    job = connected(handle_of(services.job()), services)
    odd = replace(HANDLE, func_name="make.<locals>.fit\n", backend="local")

    assert repr([job]) == f"[<JobHandle {job.job_id}: {job.func_name} on cpu ({job.backend})>]"
    assert repr(odd) == f"<JobHandle {odd.job_id}: make.<locals>.fit\\n on cpu (local)>"
    assert "<td>make.&lt;locals&gt;.fit" in odd._repr_html_()
    assert f"<code>{job.job_id}</code>" in job._repr_html_()
    assert services.journal.of("*") == []


def test_a_handle_is_made_of_any_object_with_its_fields() -> None:
    context = SimpleNamespace(**HANDLE.to_dict(), more="than needed")

    made = JobHandle.from_job_context(context, "gke", "team", "kn-other")

    assert made == replace(HANDLE, backend="gke", namespace="team", k8s_name="kn-other")


def test_handles_are_compared_and_pickled_by_their_fields_alone(
    services: FakeServices, job: JobHandle
) -> None:
    services.backend.returns(job.job_id, [1, 2])
    job.result()

    again = pickle.loads(pickle.dumps(job))

    assert again == job == HANDLE
    assert vars(again) == HANDLE.to_dict()
    assert again != replace(HANDLE, job_id="another")


# What a handle does


def test_the_value_is_returned_again_after_the_clean_up(
    services: FakeServices, job: JobHandle
) -> None:
    services.backend.returns(job.job_id, [1, 2])

    first = job.result()

    assert first == [1, 2]
    assert services.left() == job_ids_of(services.backend) == []
    assert job.result() is first
    assert job.result(timeout=0, cleanup=False) is first
    assert len(services.journal.of("remove *")) == 1
    with pytest.raises(JobNotFoundError):
        connected(handle_of(a_record()), services).result()


@pytest.mark.parametrize(
    ("debug", "cleanup", "gone"),
    [(False, None, True), (False, False, False), (True, None, False), (True, True, True)],
)
def test_a_returned_value_removes_its_job_unless_that_is_debugged(
    services: FakeServices, debug: bool, cleanup: bool | None, gone: bool
) -> None:
    job = connected(handle_of(services.job(debug=debug)), services)
    services.backend.returns(job.job_id, 42)

    assert job.result(cleanup=cleanup) == 42

    assert (services.left() == []) is gone
    assert (job_ids_of(services.backend) == []) is gone


@pytest.mark.parametrize(
    ("pattern", "error"),
    [
        ("remove *", JobError("The cluster is away.")),
        ("delete */handle.json", OSError(5, "The cluster is away.")),
        ("delete */outcome.json", ValueError("is away.")),
    ],
)
def test_a_clean_up_that_fails_costs_no_value_and_is_tried_again(
    services: FakeServices, job: JobHandle, pattern: str, error: Exception
) -> None:
    services.backend.returns(job.job_id, 42)
    services.journal.refuse(pattern, error)

    with pytest.warns(UserWarning, match="is away."):
        assert job.result() == 42
    assert services.left() != []

    assert job.result() == 42
    assert services.left() == job_ids_of(services.backend) == []


@pytest.mark.filterwarnings("error")
def test_a_clean_up_that_fails_costs_no_value_where_warnings_are_errors(
    services: FakeServices, job: JobHandle
) -> None:
    services.backend.returns(job.job_id, 42)
    services.journal.refuse("remove *", JobError("The cluster is away."))

    assert job.result() == 42


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize(
    "pattern",
    [
        "remove *", "delete */handle.json", "delete */payload.pkl", "delete */host-0.pkl",
        "delete */host-0.json", "delete */outcome.json",
    ],
)  # fmt: skip
def test_ctrl_c_during_the_clean_up_loses_no_value(
    services: FakeServices, job: JobHandle, moment: str, pattern: str
) -> None:
    value = bytes(2 * INLINE_LIMIT)
    services.backend.returns(job.job_id, value)
    getattr(services.journal, moment)(pattern, raising(KeyboardInterrupt()))

    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            got = job.result()
    except KeyboardInterrupt:
        # Another process, which knows the job by its id, collects it.
        found = find_record(services.store, job.job_id)
        assert found is not None
        assert collect(found.record, services).get() == value
    else:
        assert got == value
        assert "which has finished" in str(caught[0].message)
    assert job.result() == value
    assert services.left() == job_ids_of(services.backend) == []


@pytest.mark.parametrize("moment", ["outcome.json", "host-0.json", "host-0.pkl"])
def test_two_threads_that_share_a_handle_get_the_same_value(
    services: FakeServices, job: JobHandle, moment: str
) -> None:
    first: list[object] = []
    services.backend.returns(job.job_id, bytes(2 * INLINE_LIMIT))
    # What another thread does between two steps of this one: all of it, clean-up included.
    services.journal.before(f"read */{moment}", lambda: first.append(job.result()))

    assert job.result() is first[0]
    assert services.left() == []


def test_a_wait_that_was_given_up_when_the_value_came_removes_nothing(
    services: FakeServices, job: JobHandle
) -> None:
    services.backend.returns(job.job_id, 42)
    stop = threading.Event()
    services.journal.after("read */host-0.json", stop.set)

    with pytest.raises(WaitStopped):
        job._collect(stop=stop)

    assert services.journal.of("remove *", "delete *") == []
    assert connected(replace(job), services).result() == 42


@pytest.mark.parametrize("handled", [False, True])
def test_a_followed_log_asks_for_a_login_once_on_stderr(
    services: FakeServices,
    job: JobHandle,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    handled: bool,
) -> None:
    logger = logging.getLogger("kinetic")
    monkeypatch.setattr(logger, "propagate", handled)  # pytest has handlers for the messages.

    def report(*_: object) -> None:
        for host in range(2):
            error = LoginRequiredError(
                f"Could not get Pod {host}.", hint="Log in with: sso login handle"
            )
            logger.warning("%s The log continues after that.", error)

    services.journal.before("log_lines *", report)
    services.backend.prints(job.job_id, "one")
    services.backend.returns(job.job_id, None)
    job.logs(follow=True)
    logger.warning("later")

    out, err = capsys.readouterr()
    assert out == "one\n"
    assert err.count("sso login") == (0 if handled else 1)
    assert "later" not in err


# From its fields alone


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FolderStore:
    monkeypatch.setenv("KINETIC_HOME", str(tmp_path))
    monkeypatch.delenv("KINETIC_PROFILE", raising=False)
    return FolderStore(tmp_path / "store")


def test_a_handle_made_of_its_fields_reaches_its_job_by_itself(store: FolderStore) -> None:
    handle = replace(HANDLE, backend="local", bucket_name=str(store.location))
    report_value(store, handle.job_id, 42)
    store.write(JobObjects(handle.job_id).handle, encode(a_record(backend="local")))

    assert JobHandle(**handle.to_dict()).status() is JobStatus.SUCCEEDED
    assert pickle.loads(pickle.dumps(handle)).result() == 42
    assert JobHandle(**handle.to_dict()).status() is JobStatus.NOT_FOUND


def test_a_job_of_an_unknown_backend_is_refused_with_a_hint(store: FolderStore) -> None:
    with pytest.raises(InvalidRequestError, match="'from-the-future'") as caught:
        replace(HANDLE, backend="from-the-future").status()

    assert caught.value.hint
