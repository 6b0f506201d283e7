from __future__ import annotations

import json
from collections.abc import Callable
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kinetic_payload.errors import InvalidRequestError, RecordError
from kinetic_runner.command_line import Arguments
from kinetic_runner.parent.attempt import run_attempt


class BeginsError(Exception):
    pass


class Quick:
    """A child that gets its task at once."""

    mark = "mark"
    stop_fd = 0
    adopting = False

    def adopt_orphans(self) -> None:
        self.adopting = True

    def send_task(self, _text: str) -> None:
        assert self.adopting, "orphans of an earlier moment are not adopted"
        raise BeginsError


@pytest.fixture
def arguments_for(stored_record: Callable[..., str]) -> Callable[..., Arguments]:
    def make(folder: Path, *, idle: bool = False, **record: Any) -> Arguments:
        digest = stored_record(folder, "job", **record)
        return Arguments(
            store=str(folder), job="job", record_digest=digest, workspace=str(folder), idle=idle
        )

    return make


Make = Callable[..., Arguments]


class Signals:
    """Waits for no time; calls *then* in the wait of the number *after*."""

    def __init__(self, then: Any, *, after: int, stop: bool = False) -> None:
        self.then, self.left, self.stop = then, after, stop
        self.stop_requested = False
        self.waited: list[float] = []

    def wait(self, seconds: float) -> bool:
        self.waited.append(seconds)
        self.left -= 1
        if self.left == 0:
            self.then()
            self.stop_requested = self.stop
        return self.stop_requested


def unavailable(folder: Path) -> Callable[[], object]:
    """Let the store fail until the returned function is called."""
    there, away = folder / "job/handle.json", folder / "away"
    there.rename(away)
    there.symlink_to(there)  # No process can open that.
    return lambda: (there.unlink(), away.rename(there))


def test_a_pod_reads_its_record_after_an_outage_of_any_length(
    tmp_path: Path, arguments_for: Make
) -> None:
    child: Any = Quick()
    arguments = arguments_for(tmp_path)
    signals: Any = Signals(unavailable(tmp_path), after=6)

    with pytest.raises(BeginsError):
        run_attempt(arguments, {}, child, signals)

    assert (tmp_path / "job/attempts/1/host-0.claim").exists()


def test_another_record_than_the_one_that_was_started_is_refused(
    tmp_path: Path, arguments_for: Make, stored_record: Callable[..., str]
) -> None:
    child: Any = Quick()
    arguments = arguments_for(tmp_path)
    stored_record(tmp_path, "job", payload_digest="another")
    signals: Any = Signals(lambda: None, after=6)

    with pytest.raises(RecordError, match="not the record"):
        run_attempt(arguments, {}, child, signals)

    assert not (tmp_path / "job/attempts").exists()


@pytest.mark.parametrize("hosts", [1, 2])
def test_a_stop_of_a_pod_during_an_outage_does_not_end_the_job(
    tmp_path: Path, hosts: int, arguments_for: Make
) -> None:
    child: Any = Quick()
    arguments = arguments_for(tmp_path, hosts=hosts)
    unavailable(tmp_path)
    signals: Any = Signals(lambda: None, after=6, stop=True)
    environment = {"KINETIC_HOST_INDEX": "0"}

    code = run_attempt(arguments, environment, child, signals)

    assert code == 143


def test_an_idle_leader_that_cannot_begin_tries_more_and_more_seldom(
    tmp_path: Path, capsys: Any, arguments_for: Make
) -> None:
    child: Any = Quick()
    signals: Any = Signals(lambda: None, after=9, stop=True)
    environment = {"KINETIC_SIGNING_KEY": "no key"}

    code = run_attempt(arguments_for(tmp_path, idle=True), environment, child, signals)

    assert code == 143
    assert signals.waited == [10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 600.0, 600.0, 600.0]
    printed = capsys.readouterr().err
    assert "SIGNING_KEY is not hexadecimal" in printed
    assert "no key" not in printed
    with pytest.raises(InvalidRequestError):
        run_attempt(arguments_for(tmp_path), environment, child, signals)


def test_an_idle_leader_ends_its_job_if_its_container_was_killed_too_often(
    tmp_path: Path, arguments_for: Make
) -> None:
    child: Any = SimpleNamespace(kill=lambda: None)
    for attempt in (1, 2):
        signals: Any = Signals(lambda: None, after=1, stop=True)
        idle = arguments_for(tmp_path, idle=True, workload="LeaderWorkerSet", retries=1)
        with pytest.raises(BeginsError):
            run_attempt(idle, {}, Quick(), signals)  # type: ignore[arg-type]
        assert (tmp_path / f"job/attempts/{attempt}/host-0.claim").exists()

    assert run_attempt(idle, {}, child, signals) == 2

    assert json.loads((tmp_path / "job/outcome.json").read_text())["status"] == "failed"
    assert signals.waited == [inf]
