"""Jobs whose bucket refuses their reports: no value is lost, and no job fails because of it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from kinetic.backends.backend import Launch
from kinetic.backends.local.backend import LocalBackend
from kinetic.errors import (
    IntegrityError,
    JobError,
    SignatureError,
    StorePermissionError,
)
from kinetic.job_status import JobStatus
from kinetic.jobs.handle import JobHandle
from kinetic.jobs.services import Services, open_at
from kinetic.settings.keys import KeyFile, KeySigner
from kinetic.testing import eventually
from kinetic_payload.layout import REPORT_SECONDS, JobObjects
from kinetic_payload.stores.store import parse_location

from .conftest import submit_to

WORK = """
    import pathlib, random, time

    class Broken(Exception):
        pass

    def work(size, until=None):
        print("at work", flush=True)
        while until is not None and not pathlib.Path(until).exists():
            time.sleep(0.01)
        return random.Random(7).randbytes(size)

    def fail(size):
        raise Broken("x" * size)
"""
LARGE = 200_000


def expected(size: int) -> bytes:
    import random

    return random.Random(7).randbytes(size)


class Brief(LocalBackend):
    """A backend whose runners have five seconds to report after a stop."""

    def start(self, launch: Launch) -> None:
        super().start(replace(launch, grace=0.1))


class Desk:
    """Submits real jobs over the strict server, which retry their reports for *seconds*."""

    def __init__(self, desk: Any, *, seconds: float = REPORT_SECONDS) -> None:
        self.desk = desk
        self.home = desk.folder / "here"
        self.seconds = seconds
        self.module = desk.module("work", WORK)

    @property
    def services(self) -> Services:
        store = open_at(parse_location(self.desk.store))
        key_signer = KeySigner(KeyFile(self.home))
        backend = Brief(
            self.home,
            store,
            verify=key_signer.verify,
            report_seconds=self.seconds,
        )
        return Services(store, backend, key_signer=key_signer)

    def submit(self, name: str, *args: object) -> JobHandle:
        return submit_to(self.services, self.desk.project, getattr(self.module, name), *args)

    def found(self, handle: JobHandle) -> JobHandle:
        """Return the job as a process of its own would find it."""
        import kinetic

        return kinetic.attach(handle.job_id)

    def refuse(self, status: int, name: str = "*", **more: Any) -> Any:
        return self.desk.server.faults.add(
            operation="objects.insert*", name=name, status=status, **more
        )

    def kept(self, handle: JobHandle) -> Path:
        return Path(self.home, "jobs", handle.job_id, "unsaved")

    def unsaved(self, size: int = LARGE) -> JobHandle:
        """Return a job whose result could not be stored, and that nothing runs of any more."""
        self.refuse(403, "*/attempts/*/host-0.[pj]*")
        handle = self.submit("work", size)
        eventually(lambda: handle.status() is JobStatus.FAILED)
        return handle


@pytest.fixture
def here(desk: Any) -> Desk:
    return Desk(desk)


@pytest.fixture
def brief(desk: Any) -> Desk:
    """Return a desk whose jobs give up at once."""
    return Desk(desk, seconds=0.5)


@pytest.mark.parametrize("status", [401, 403])
def test_a_refusal_of_any_object_at_the_end_of_a_job_costs_nothing(here: Desk, status: int) -> None:
    # A 401 is tried again at once, and passes unnoticed.
    ends = ["*/host-0.pkl", "*/host-0.json", "*/outcome.json", "*logs/*"]
    refused = [here.refuse(status, name, times=2) for name in ends]

    handle = here.submit("work", LARGE)

    assert handle.result(cleanup=False) == expected(LARGE)
    assert [each.hits for each in refused] == [2, 2, 2, 2]
    assert "at work" in handle.logs()
    assert not here.kept(handle).exists()


def test_a_window_in_which_everything_is_refused_costs_nothing(here: Desk, tmp_path: Path) -> None:
    handle = here.submit("work", LARGE, str(tmp_path / "go"))
    next(iter(handle.log_lines(follow=True)))
    window = here.desk.server.faults.outage(3, status=403)

    (tmp_path / "go").touch()

    home = here.home / "jobs" / handle.job_id / "state.json"
    eventually(lambda: home.exists() and json.loads(home.read_bytes())["status"] == "succeeded")
    assert window.hits
    assert handle.result() == expected(LARGE)


def test_a_large_exception_is_stored_as_surely_as_a_value(here: Desk) -> None:
    refused = here.refuse(403, "*/host-0.pkl", times=2)

    with pytest.raises(here.module.Broken) as caught:
        here.submit("fail", LARGE).result()

    assert (refused.hits, len(str(caught.value))) == (2, LARGE)


@pytest.mark.parametrize("size", [LARGE, 100])
def test_a_result_that_cannot_be_stored_is_kept_here_and_stored_when_it_is_collected(
    brief: Desk, size: int
) -> None:
    handle = brief.unsaved(size)

    outcome = handle.outcome()
    assert f"kinetic jobs result {handle.job_id}" in outcome.message
    assert str(brief.kept(handle)) in outcome.message
    with pytest.raises(StorePermissionError, match="could not be stored") as caught:
        brief.found(handle).result()
    assert str(brief.kept(handle)) in str(caught.value.hint)
    for destroy in (handle.cleanup, handle.cancel):
        with pytest.raises(JobError, match="not in the store yet"):
            destroy()
    assert JobObjects(handle.job_id).outcome not in brief.desk.names()
    shutil.copy2(brief.home / "key", brief.desk.sit("there") / "key")
    assert brief.found(handle).status() is not JobStatus.SUCCEEDED
    brief.desk.sit("here")

    brief.desk.server.faults.clear()

    assert brief.found(handle).result(cleanup=False) == expected(size)
    assert handle.status() is JobStatus.SUCCEEDED
    assert not brief.kept(handle).exists()
    assert handle.result() == expected(size)
    assert brief.desk.of_jobs() == []


def test_a_kept_result_is_stored_only_if_its_job_wrote_it(brief: Desk) -> None:
    handle = brief.unsaved()
    brief.desk.server.faults.clear()
    names = JobObjects(handle.job_id)
    value, report = (
        brief.kept(handle) / n for n in (names.host_value(1, 0), names.host_outcome(1, 0))
    )
    written = value.read_bytes(), report.read_bytes()

    value.write_bytes(b"x" * len(written[0]))
    with pytest.raises(IntegrityError, match="digest"):
        handle.result()
    value.write_bytes(written[0])
    report.write_bytes(written[1].replace(b'"attempt": 1', b'"attempt": 2'))
    with pytest.raises(SignatureError):
        handle.result()
    report.write_bytes(written[1])

    assert handle.result() == expected(LARGE)


@pytest.mark.parametrize("victim", ["supervisor", "runner", "both"])
def test_a_kill_while_the_result_is_stored_loses_nothing(here: Desk, victim: str) -> None:
    refused = here.refuse(403, "*/host-0.pkl")
    handle = here.submit("work", LARGE)
    eventually(lambda: refused.hits)
    assert handle.status() is JobStatus.RUNNING
    state = json.loads((here.home / "jobs" / handle.job_id / "state.json").read_bytes())
    runner = psutil.Process(state["attempts"][0]["pids"][0])
    supervisor = runner.parent()
    assert supervisor is not None
    if victim != "runner":
        os.kill(supervisor.pid, signal.SIGKILL)
    if victim != "supervisor":
        os.kill(runner.pid, signal.SIGKILL)
    if victim == "runner":
        # Its supervisor takes over.
        state_file = here.home / "jobs" / handle.job_id / "state.json"
        eventually(lambda: "cannot be stored yet" in state_file.read_text())
    elif victim == "supervisor":
        # Its runner goes on.
        words = "supervisor died.*cannot be stored yet"
        eventually(lambda: re.search(words, handle.outcome().message))
        assert handle.status() is JobStatus.RUNNING
    else:
        eventually(lambda: handle.status() is JobStatus.FAILED)

    here.desk.server.faults.clear()

    assert here.found(handle).result() == expected(LARGE)


def test_a_cancel_while_the_result_is_stored_stops_the_job_and_keeps_the_value(here: Desk) -> None:
    refused = here.refuse(403, "*/host-0.pkl")
    handle = here.submit("work", LARGE)
    eventually(lambda: refused.hits)

    with pytest.raises(JobError, match=f"kinetic jobs result {handle.job_id}"):
        handle.cancel()
    here.desk.server.faults.clear()

    assert handle.status() is JobStatus.FAILED
    assert handle.result() == expected(LARGE)
