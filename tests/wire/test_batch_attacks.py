"""Attacks on a batch of a writer to the bucket who has no key: copy, forge, swap."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import kinetic
from kinetic.errors import IntegrityError, JobFailedError, KineticError, SignatureError
from kinetic.settings.keys import KeyFile
from kinetic.testing import eventually
from kinetic_payload.layout import JobObjects
from kinetic_payload.records.encode import encode
from kinetic_payload.records.outcome import Outcome
from kinetic_payload.records.signing import Signer

from .test_attacks import Attacker

JOBS = """
    import os, pathlib, time
    import kinetic

    @kinetic.run(accelerator="cpu")
    def work(index, marks="", wait=False):
        if marks:
            pathlib.Path(marks, str(index)).touch()
        while wait and not os.path.exists(f"{marks}/go"):
            time.sleep(0.02)
        return index if index % 2 else str(index) * 300_000
"""


def value(index: int) -> Any:
    return index if index % 2 else str(index) * 300_000


@pytest.fixture
def attacker(desk: Any, tmp_path: Path) -> Iterator[Attacker]:
    found = Attacker(desk, tmp_path)
    yield found
    assert not found.canary.exists(), "the attacker's code ran"


@pytest.fixture
def work(desk: Any) -> Any:
    return desk.module("jobs", JOBS).work


def collected(group_id: str) -> list[Any]:
    """Return what a user gets who collects the batch elsewhere: values and errors of ours."""
    found = kinetic.attach_batch(group_id).results(
        return_exceptions=True, timeout=200, cleanup=False
    )
    return [type(each) if isinstance(each, KineticError) else each for each in found]


def test_outcomes_and_values_of_a_batch_that_were_copied_or_forged_are_refused_alone(
    attacker: Attacker, work: Any
) -> None:
    handle = work.run_async_map(range(4))
    expected = [value(index) for index in range(4)]
    assert handle.results(cleanup=False) == expected
    first, second, third, _ = (JobObjects(job.job_id) for job in handle.jobs)
    read = attacker.store.read
    lie = Outcome(job_id=second.job_id, status="succeeded", attempt=1, host=0)
    forgeries = {
        "another's outcome": (1, lambda: attacker.write(second.outcome, read(first.outcome))),
        "an unsigned outcome": (1, lambda: attacker.write(second.outcome, encode(lie))),
        "another's value": (2, lambda: attacker.write(third.host_value(1, 0), read(first.host_value(1, 0)))),
        "code as a value": (2, lambda: attacker.write(third.host_value(1, 0), attacker.evil)),
    }  # fmt: skip

    for what, (index, forge) in forgeries.items():
        with attacker.undone():
            forge()
            names = attacker.desk.names()
            if index == 1:
                # Nothing else tells how it ended: it is reported, and runs again.
                with pytest.warns(UserWarning, match="The outcome of input 1 is ignored"):
                    assert collected(handle.group_id) == expected, what
            else:
                found = collected(handle.group_id)
                assert issubclass(found.pop(2), IntegrityError), what
                assert found == [expected[each] for each in (0, 1, 3)], what
            assert set(names) <= set(attacker.desk.names())
    assert collected(handle.group_id) == expected


def test_a_forged_outcome_stops_no_worker(attacker: Attacker, work: Any, tmp_path: Path) -> None:
    handle = work.run_async_map([(0, str(tmp_path), True), 1, 3], max_concurrent=1)
    eventually(lambda: (tmp_path / "0").exists())
    for names in (JobObjects(handle.group_id), JobObjects(handle.jobs[1].job_id)):
        lie = Outcome(job_id=names.job_id, status="cancelled", written_by="client")
        attacker.write(names.outcome, encode(lie))

    (tmp_path / "go").touch()

    assert handle.results(cleanup=False, timeout=200) == [value(0), 1, 3]


def test_inputs_that_are_swapped_before_a_worker_reads_them_are_never_unpickled(
    attacker: Attacker, work: Any, tmp_path: Path
) -> None:
    inputs = [(0, str(tmp_path), True), 1, 3, 5]
    handle = work.run_async_map(inputs, max_concurrent=1, inputs_per_pod=2)
    eventually(lambda: (tmp_path / "0").exists())
    name = JobObjects(handle.group_id).inputs(0)
    line, _, bodies = attacker.store.read(name).partition(b"\n")
    heads = json.loads(line)
    size = heads[0][0]
    evil = attacker.evil.ljust(heads[1][0], b".")[: heads[1][0]]
    forged = bodies[:size] + evil + bodies[size + len(evil) :]
    attacker.write(name, line + b"\n" + forged)
    (tmp_path / "go").touch()

    found = handle.results(return_exceptions=True, timeout=200)

    assert (found[0], found[2:]) == (value(0), [3, 5])
    assert isinstance(found[1], KineticError)
    assert "not the one that was submitted" in str(found[1])
    assert hashlib.sha256(evil).hexdigest() != heads[1][1]


def test_a_manifest_that_was_forged_is_read_with_a_warning_and_neither_cancelled_nor_believed(
    attacker: Attacker, work: Any, tmp_path: Path
) -> None:
    handle = work.run_async_map([(0, str(tmp_path), True), 1])
    eventually(lambda: (tmp_path / "0").exists())
    name = JobObjects(handle.group_id).handle
    with attacker.undone():
        attacker.unsign(name, func_name="theirs", total_expected=3, failed={"1": "gone"})
        with pytest.warns(UserWarning, match="do not trust its name and tags"):
            found = kinetic.attach_batch(handle.group_id)
        assert (repr(found)[-16:], len(found)) == ("theirs, 3 inputs>"[-16:], 3)
        assert 0 in dict(found.statuses())
        for stop in (found.cancel, found.cleanup, partial(found.cleanup, k8s=False)):
            with pytest.raises(SignatureError):
                stop()
        assert not attacker.desk.server.names(
            "bucket", f"team/{JobObjects(handle.group_id).outcome}"
        )
    (tmp_path / "go").touch()
    assert handle.results(cleanup=False, timeout=200) == [value(0), 1]
    attacker.unsign(name, total_expected=3)
    with pytest.warns(UserWarning, match="cannot be started again: .*is not signed"):
        assert collected(handle.group_id) == [value(0), 1, JobFailedError]
    for start in (found.resume, found.retry_failed):
        with pytest.raises(SignatureError):
            start()


def test_a_manifest_that_is_damaged_or_newer_is_reported_and_nothing_is_deleted(
    attacker: Attacker, work: Any
) -> None:
    handle = work.run_async_map([1])
    handle.wait()
    name = JobObjects(handle.group_id).handle
    record = json.loads(attacker.store.read(name))
    lies: dict[str, dict[str, Any]] = {
        "written in format 2": {"version": 2, "inputs": "?"},
        "not a valid GroupManifest": {"total_expected": "3"},
        "record of another job": {"group_id": "grp-00000000"},
        "not the manifest of a batch": {"job": None},
    }
    for message, fields in lies.items():
        attacker.write(name, json.dumps({**record, **fields}).encode())
        names = attacker.desk.names()

        with pytest.raises(KineticError, match=message):
            kinetic.attach_batch(handle.group_id).results()

        assert attacker.desk.names() == names
    # What a later version of this format adds is left alone.
    del record["signature"]
    newer = json.dumps({**record, "later": [1], "inputs": [{**record["inputs"][0], "more": 2}]})
    key = bytes.fromhex(KeyFile(attacker.desk.folder / "here").path.read_text())
    attacker.write(name, Signer(key).sign(newer.encode(), name))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert kinetic.attach_batch(handle.group_id).results() == [1]
