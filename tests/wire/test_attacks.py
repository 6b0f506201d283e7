"""Attacks of a writer to the bucket who has no key: forge, replay, swap, bomb, escape, hang.

Each attack is made on real jobs over the strict server, and ends in the right value or in one clear
error: the attacker's code does not run, forgeries are refused, and nothing is waited for or read without a
limit, for which requests and bytes are counted. `docs/trust.md` describes what is left to an attacker.
"""

from __future__ import annotations

import base64
import hashlib
import io
import itertools
import json
import os
import pickle
import re
import subprocess
import sys
import threading
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import google_crc32c
import pytest

import kinetic
from kinetic.errors import IntegrityError, KineticError, SignatureError
from kinetic.job_status import JobStatus
from kinetic.jobs.discover import statuses_of
from kinetic.jobs.services import open_at
from kinetic.jobs.stored_logs import stored_lines
from kinetic.testing import eventually
from kinetic_payload.archives.zip_format import (
    central_header,
    data_offset,
    end_records,
    local_header,
    read_directory,
)
from kinetic_payload.layout import JobObjects
from kinetic_payload.records.encode import encode
from kinetic_payload.records.host_outcome import HostOutcome, Pickled
from kinetic_payload.records.outcome import Outcome
from kinetic_payload.records.signing import Signer
from kinetic_payload.stores.store import parse_location
from kinetic_servers.gcs import GcsServer
from kinetic_servers.http.faults import Fault

from .conftest import Desk, ended

VALUE = bytes(100_000)
"""The value of the finished job: too large for its report."""

JOBS = """
    import kinetic, os, pathlib, time

    def until(path):
        while path and not os.path.exists(path):
            time.sleep(0.02)

    @kinetic.run(accelerator="cpu")
    def work(value, begun="", go="", ended=""):
        print("\\x1b[31mworking\\x1b[0m", flush=True)
        if begun:
            pathlib.Path(begun).touch()
        until(go)
        if ended:
            pathlib.Path(ended).touch()
        return value

    @kinetic.run(accelerator="cpu", retries=1)
    def second(value):
        if os.environ["KINETIC_ATTEMPT"] == "1":
            raise ValueError("not yet")
        return value

    @kinetic.run(accelerator="cpu")
    def open_at(data):
        return pathlib.Path(data, "file").read_text()
"""


class Canary:
    """Creates a file where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


class Attacker:
    """A writer to the bucket of a desk; *job_id* is a finished job there."""

    def __init__(self, desk: Any, folder: Path, job_id: str = "") -> None:
        self.desk = desk
        self.job_id = job_id
        self.names = JobObjects(job_id)
        self.canary = folder / "canary"
        self.evil = pickle.dumps(Canary(self.canary))
        self.store = open_at(parse_location(desk.store))

    @property
    def value(self) -> Pickled:
        """A value that is the canary."""
        inline = base64.b64encode(self.evil).decode()
        return Pickled(len(self.evil), hashlib.sha256(self.evil).hexdigest(), inline=inline)

    def write(self, name: str, data: bytes) -> None:
        self.store.write(name, data)

    def change(self, name: str, **fields: Any) -> None:
        """Rewrite a record, with its signature as it was."""
        self.write(name, json.dumps({**json.loads(self.store.read(name)), **fields}).encode())

    def unsign(self, name: str, **fields: Any) -> None:
        """Rewrite a record without a signature."""
        record = json.loads(self.store.read(name))
        record.pop("signature", None)
        self.write(name, json.dumps({**record, **fields}).encode())

    @contextmanager
    def undone(self) -> Iterator[None]:
        """Restore the bucket after the block."""
        before = {name: self.store.read(name) for name in self.desk.names()}
        yield
        for name in self.desk.names():
            if name not in before:
                self.store.delete(name)
        for name, data in before.items():
            self.store.write(name, data)

    def holding(self, name: str) -> Fault:
        """Hold the next request that reads the object *name*."""
        operation = "objects.get.media"
        return self.desk.server.faults.add(operation=operation, name=name, held=True, times=1)

    def swap(self, held: Fault, name: str, data: bytes) -> None:
        """Replace an object while a request to read it is held."""
        eventually(lambda: held.hits)
        self.write(name, data)
        held.release()

    @contextmanager
    def away(self) -> Iterator[None]:
        """Use another home in the block, and hide the folder of the job: only the bucket is left of it."""
        folder = self.desk.folder / "here" / "jobs" / self.job_id
        aside = folder.rename(folder.with_name("aside"))
        self.desk.sit("elsewhere")
        try:
            yield
        finally:
            aside.rename(folder)

    def move(self) -> None:
        """Use another home with the same key, as on another machine of the user."""
        self.desk.share_key("there")


@pytest.fixture
def attacker(desk: Any, tmp_path: Path) -> Iterator[Attacker]:
    """Return an attacker of the jobs that a test starts."""
    found = Attacker(desk, tmp_path)
    yield found
    assert not found.canary.exists(), "the attacker's code ran"


@pytest.fixture(scope="module")
def job_and_objects(
    tmp_path_factory: pytest.TempPathFactory, warm: Callable[[Path], Path]
) -> tuple[Path, str, dict[str, bytes]]:
    """Return the folder of a desk, a job that ended there, and the objects of its store."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch, GcsServer() as server:
        server.create_bucket("bucket")
        desk = Desk(folder, server, patch, warm)
        job_id = ended(desk.module("jobs", JOBS).work.run_async(VALUE)).job_id
        desk.clear()
        return (
            folder,
            job_id,
            {name: server.read("bucket", f"team/{name}") for name in desk.names()},
        )


@pytest.fixture
def reading(
    job_and_objects: tuple[Path, str, dict[str, bytes]],
    gcs: GcsServer,
    monkeypatch: pytest.MonkeyPatch,
    warm: Callable[[Path], Path],
    tmp_path: Path,
) -> Iterator[Attacker]:
    """Return an attacker of those who read the finished job, with a copy of its bucket."""
    folder, job_id, objects = job_and_objects
    found = Attacker(Desk(folder, gcs, monkeypatch, warm), tmp_path, job_id)
    for name, data in objects.items():
        found.write(name, data)
    yield found
    found.desk.clear()
    assert not found.canary.exists(), "the attacker's code ran"


@pytest.fixture
def jobs(desk: Any) -> Any:
    return desk.module("jobs", JOBS)


def collected(job_id: str) -> Any:
    """Return what a user gets who collects the job: the value, or an error of ours."""
    try:
        return kinetic.attach(job_id).result(timeout=120, cleanup=False)
    except KineticError as error:
        return error


def beside(act: Callable[[], Any]) -> Callable[[], Any]:
    """Start *act* in a thread; return a function that waits for its end and returns its result."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(act()), daemon=True)
    thread.start()

    def end() -> Any:
        thread.join(150)
        assert found, "it never ended"
        return found[0]

    return end


@pytest.fixture
def work(jobs: Any) -> Any:
    return jobs.work


# Forge


def forgeries(attacker: Attacker) -> dict[str, Callable[[], None]]:
    """Return ways to change the objects of a finished job."""
    job_id, names = attacker.job_id, attacker.names
    report = json.loads(attacker.store.read(names.host_outcome(1, 0)))
    lie = json.dumps({**report, "value": asdict(attacker.value)}).encode()
    mine = Signer(b"m" * 32)

    def outcome(sign: Callable[[bytes], bytes]) -> None:
        attacker.write(names.host_outcome(1, 0), lie)
        digest = hashlib.sha256(lie).hexdigest()
        claimed = Outcome(job_id=job_id, status="succeeded", attempt=1, host=0, digest=digest)
        attacker.write(names.outcome, sign(encode(claimed)))

    return {
        "an unsigned outcome": lambda: outcome(bytes),
        "an outcome of another key": lambda: outcome(lambda data: mine.sign(data, names.outcome)),
        "a changed outcome": lambda: attacker.change(names.outcome, message="changed"),
        "an unsigned cancellation": lambda: attacker.unsign(names.outcome, status="cancelled"),
        "an unsigned record": lambda: attacker.unsign(names.handle, func_name="theirs"),
        "a changed record": lambda: attacker.change(names.handle, hosts=2),
        "a changed report": lambda: attacker.write(names.host_outcome(1, 0), lie),
        "another value": lambda: attacker.write(names.host_value(1, 0), attacker.evil),
    }


def test_forged_objects_of_a_finished_job_are_refused_and_never_unpickled(
    reading: Attacker,
) -> None:
    job_id = reading.job_id
    assert collected(job_id) == VALUE

    for what, forge in forgeries(reading).items():
        with reading.undone():
            forge()
            [job] = kinetic.list_jobs()
            if what in ("a changed outcome", "an unsigned cancellation"):
                # The job's report contains how it ended, and the outcome is written again.
                assert (job.status(), collected(job_id)) == (JobStatus.SUCCEEDED, VALUE), what
                continue
            assert isinstance(collected(job_id), IntegrityError), what
            [status] = statuses_of([job])
            if what in ("a changed report", "another value"):
                assert status is JobStatus.SUCCEEDED, what  # As in the signed outcome.
            else:
                assert isinstance(status, SignatureError), what
                for ask in (job.status, job.outcome):
                    with pytest.raises(SignatureError):
                        ask()
    assert collected(job_id) == VALUE


def with_checksum(begin: bytes, end: bytes, *, like: bytes) -> bytes:
    """Return *begin*, zeros and ones, and *end*: of the size of *like*, and with its CRC32C."""
    size, after = len(like) - len(begin) - len(end), 8 * len(end)
    whole = int.from_bytes(begin + b"0" * size + end, "big")

    def checksum(number: int) -> int:
        return google_crc32c.value(number.to_bytes(len(like), "big"))

    changes: dict[int, tuple[int, int]] = {}  # By their highest bit: of the checksum, of the whole.
    for place in range(size):
        ones = 1 << after + 8 * place
        change = checksum(whole ^ ones) ^ checksum(whole)
        while change and (known := changes.get(change.bit_length())):
            change, ones = change ^ known[0], ones ^ known[1]
        changes[change.bit_length()] = (change, ones)
    wanted = google_crc32c.value(like) ^ checksum(whole)
    while wanted:
        change, ones = changes[wanted.bit_length()]
        wanted, whole = wanted ^ change, whole ^ ones
    return whole.to_bytes(len(like), "big")


def test_forged_metadata_of_records_is_ignored_by_a_list(
    reading: Attacker, gcs_client: Any
) -> None:
    for name in (reading.names.handle, reading.names.outcome):
        true = reading.store.read(name)
        lie = json.dumps({**json.loads(true), "signature": ""}).replace("succeeded", "cancelled")
        forged = with_checksum(lie[:-1].encode() + b', "x": "', b'"}', like=true).decode()
        blob = gcs_client.bucket("bucket").get_blob(f"team/{name}")
        before, blob.metadata = blob.metadata, {"kinetic-content": forged}
        blob.patch()

        [status] = statuses_of(kinetic.list_jobs())
        if name == reading.names.handle:
            assert isinstance(status, SignatureError)
        else:
            assert status is JobStatus.SUCCEEDED  # The object itself was read.
        assert collected(reading.job_id) == VALUE
        blob.metadata = {"kinetic-content": lie}
        blob.patch()
        assert statuses_of(kinetic.list_jobs()) == [JobStatus.SUCCEEDED]
        blob.metadata = before
        blob.patch()


def forged_while_it_runs(names: JobObjects, attacker: Attacker) -> dict[str, bytes]:
    job_id = names.job_id
    report = HostOutcome(
        job_id=job_id, attempt=1, host=0, succeeded=True, reason="returned", phase="report",
        exit_code=0, value=attacker.value,
    )  # fmt: skip
    cancelled = Outcome(job_id=job_id, status="cancelled", written_by="client")
    success = Outcome(
        job_id=job_id, status="succeeded", attempt=1, host=0,
        digest=hashlib.sha256(encode(report)).hexdigest(),
    )  # fmt: skip
    return {
        "a cancellation": encode(cancelled),
        "a success": encode(success),
        "a report": encode(report),
        "a value": attacker.evil,
    }


def test_forged_objects_of_a_running_job_end_neither_it_nor_a_wait_for_it(
    desk: Any, work: Any, attacker: Attacker, tmp_path: Path
) -> None:
    begun, go, end = (str(tmp_path / name) for name in ("begun", "go", "ended"))
    handle = work.run_async(VALUE, begun, go, end)
    names = JobObjects(handle.job_id)
    eventually(lambda: Path(begun).exists())
    waiting = beside(lambda: collected(handle.job_id))
    forged = forged_while_it_runs(names, attacker)
    attacker.write(names.host_outcome(1, 0), forged["a report"])
    attacker.write(names.host_value(1, 0), forged["a value"])
    for what in ("a cancellation", "a success"):
        desk.server.requests.clear()
        attacker.write(names.outcome, forged[what])
        # Its supervisor looks whether it was cancelled, and goes on.
        looked = {"operation": "objects.get.media", "name": f"*{names.outcome}"}
        eventually(lambda: desk.server.requests.count(**looked) >= 1)
        assert handle.status() is JobStatus.RUNNING
        assert statuses_of(kinetic.list_jobs()) == [JobStatus.RUNNING]
        attacker.move()
        assert kinetic.attach(handle.job_id).status() in (JobStatus.PENDING, JobStatus.RUNNING)
        desk.sit("here")

    Path(go).touch()

    ended(handle)
    assert Path(end).exists()
    assert waiting() == collected(handle.job_id) == VALUE
    assert [statuses_of([job])[0] for job in kinetic.list_jobs()] == [JobStatus.SUCCEEDED]


def test_a_forged_cancellation_is_reported_once_while_a_result_is_waited_for(
    desk: Any, work: Any, attacker: Attacker, tmp_path: Path
) -> None:
    begun, go = str(tmp_path / "begun"), str(tmp_path / "go")
    handle = work.run_async(42, begun, go)
    names = JobObjects(handle.job_id)
    eventually(lambda: Path(begun).exists())
    attacker.write(names.outcome, forged_while_it_runs(names, attacker)["a cancellation"])

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with pytest.raises(TimeoutError):
            handle.result(timeout=1)

    [warning] = [str(one.message) for one in warned if names.outcome in str(one.message)]
    assert f"Job {handle.job_id} runs on" in warning
    handle.cancel()  # Over what lies there.
    with pytest.raises(kinetic.JobCancelledError):
        handle.result(timeout=120)


def test_forged_claims_and_logs_of_other_attempts_are_ignored(
    desk: Any, jobs: Any, attacker: Attacker
) -> None:
    handle = ended(jobs.second.run_async("second"))
    names = JobObjects(handle.job_id)
    for attempt in (3, 4, 999):
        attacker.write(names.claim(attempt, 0), b"{}")
        attacker.write(f"{names.log_chunks(attempt, 0)}00000000", b"theirs\n")
        attacker.write(names.host_outcome(attempt, 0), b"{}")
    attacker.store.delete(names.outcome)
    attacker.move()
    job = kinetic.attach(handle.job_id)

    for part in ({}, {"follow": True}, {"attempt": "all"}):
        assert "theirs" not in [line.text for line in job.log_lines(**part)]
    assert job.status() is JobStatus.SUCCEEDED  # As in the reports of attempt 2.


# Replay


def test_signed_objects_of_an_older_job_are_refused_in_another_place(
    reading: Attacker,
) -> None:
    jobs = reading.desk.module("jobs", JOBS)
    older, newer = JobObjects(ended(jobs.work.run_async("old")).job_id), reading.names
    retried = JobObjects(ended(jobs.second.run_async("second")).job_id)
    moves = {
        "a record": [(older.handle, newer.handle)],
        "an outcome": [(older.outcome, newer.outcome)],
        "a report": [(older.host_outcome(1, 0), newer.host_outcome(1, 0))],
        "a whole end": [
            (older.outcome, newer.outcome),
            (older.host_outcome(1, 0), newer.host_outcome(1, 0)),
        ],
        "an attempt": [(retried.host_outcome(1, 0), retried.host_outcome(2, 0))],
    }
    assert [collected(one.job_id) for one in (newer, retried)] == [VALUE, "second"]

    for what, copies in moves.items():
        with reading.undone():
            for source, target in copies:
                reading.write(target, reading.store.read(source))
            found = collected(copies[0][1].partition("/")[0])
            # With the outcome of another job, the job's own report decides.
            right = found == VALUE if what == "an outcome" else isinstance(found, KineticError)
            assert right, (what, found)


# Swap


def swaps(attacker: Attacker) -> dict[str, tuple[str, bytes, str]]:
    """Return which object is replaced just before the worker reads it, the new content, and a word of the error."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("sitecustomize.py", f"open({str(attacker.canary)!r}, 'w')")
        packed.writestr("../../escaped.py", "")
    header = b'{"format": 1, "python": "3.11", "cloudpickle": "3", "kinetic": "0"}\n'
    return {
        "the call": ("payload.pkl", header + attacker.evil, "payload"),
        "the project": (".zip", archive.getvalue(), "extract"),
    }


@pytest.mark.parametrize("what", ["the call", "the project"])
def test_a_call_or_project_that_is_swapped_before_the_worker_reads_it_never_runs(
    desk: Any, work: Any, attacker: Attacker, what: str
) -> None:
    suffix, data, word = swaps(attacker)[what]
    held = attacker.holding(f"*{suffix}")
    end = beside(lambda: ended(work.run_async(42)).job_id)
    eventually(lambda: held.hits)
    [name] = [name for name in desk.names() if name.endswith(suffix)]
    attacker.swap(held, name, data)

    found = collected(end())

    assert isinstance(found, KineticError)
    assert word in str(found)
    assert not list(desk.folder.rglob("escaped.py"))


@pytest.mark.parametrize("what", ["a report", "a value"])
def test_a_report_or_value_that_is_swapped_before_it_is_collected_is_never_unpickled(
    reading: Attacker, what: str
) -> None:
    names = reading.names
    name = names.host_outcome(1, 0) if what == "a report" else names.host_value(1, 0)
    report = json.loads(reading.store.read(names.host_outcome(1, 0)))
    lie = json.dumps({**report, "value": asdict(reading.value)}).encode()
    held = reading.holding(f"*{name}")
    end = beside(lambda: collected(reading.job_id))

    reading.swap(held, name, lie if what == "a report" else reading.evil)

    assert isinstance(end(), IntegrityError)


# Bomb


def test_no_object_is_read_beyond_its_limit(reading: Attacker) -> None:
    names = reading.names
    most = {
        names.handle: 256 << 10,
        names.outcome: 256 << 10,
        names.host_outcome(1, 0): 8 << 20,
        names.host_value(1, 0): 200_000,
        f"{names.log_chunks(1, 0)}00000000": 8 << 20,
    }

    for name, size in most.items():
        with reading.undone():
            reading.write(name, b"{" + b" " * 2 * size)
            reading.desk.server.requests.clear()
            kinetic.list_jobs()
            found = collected(names.job_id)
            with suppress(KineticError):
                kinetic.attach(names.job_id).outcome()
            log = "".join(line.text for line in stored_lines(reading.store, names.job_id, 1))
            asked = reading.desk.server.requests.matching(
                operation="objects.get.media", name=f"*{name}"
            )
            assert max((one.bytes_out for one in asked), default=0) <= size + 1, name
            assert len(log) < 9 << 20
            harmless = name.startswith("logs/") or name == names.outcome
            assert isinstance(found, KineticError) is not harmless, name


def test_a_large_value_is_read_only_up_to_its_signed_size(
    desk: Any, work: Any, attacker: Attacker
) -> None:
    names = JobObjects(ended(work.run_async(bytes(9 << 20))).job_id)
    attacker.write(names.host_value(1, 0), bytes(60 << 20))
    desk.server.requests.clear()

    assert isinstance(collected(names.job_id), IntegrityError)

    asked = desk.server.requests.matching(name="*host-0.pkl")
    assert sum(one.bytes_out for one in asked) <= 17 << 20


def test_a_zip_bomb_in_place_of_the_project_is_refused_before_it_unpacks(
    desk: Any, work: Any, attacker: Attacker
) -> None:
    held = attacker.holding("*.zip")
    end = beside(lambda: ended(work.run_async(42)).job_id)
    eventually(lambda: held.hits)
    [name] = [name for name in desk.names() if name.endswith(".zip")]
    # Its directory names the right files with the right digests, and the first one is a bomb.
    stream = io.BytesIO(attacker.store.read(name))
    members = list(read_directory(stream, max_entries=1000))
    bomb, *rest = sorted(members, key=lambda one: (one.kind != "file", one.path))
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    data = b"".join(packer.compress(bytes(1 << 20)) for _ in range(300)) + packer.flush()
    bomb = replace(bomb, method=8, size=300 << 20, compressed=len(data), offset=0)
    archive = io.BytesIO()
    archive.write(local_header(bomb) + data)
    for one in rest:
        content = stream.getvalue()[data_offset(stream, one) :][: one.compressed]
        one.offset = archive.tell()
        archive.write(local_header(one) + content)
    start = archive.tell()
    archive.write(b"".join(central_header(one) for one in (bomb, *rest)))
    archive.write(end_records(len(members), start, archive.tell() - start))
    attacker.swap(held, name, archive.getvalue())
    job_id = end()

    assert "tree" in str(collected(job_id))
    assert not [path for path in desk.folder.rglob(bomb.path) if path.stat().st_size > 1 << 20]


HOSTILE = (
    {"hosts": 10**9},
    {"hosts": -1},
    {"retries": 1e300},
    {"hosts": 10**400},
    {"timeout": 1e999},
    {"created_at": "9" * 100_000},
    {"func_name": None},
    {"labels": [[]]},
    {"keeper": {"home": "/", "machine": 3}},
    {"version": 10**30},
    {"job_id": "../../.."},
    {"x": None},
)


def test_hostile_records_neither_break_nor_hang_a_list(reading: Attacker) -> None:
    job_id = reading.job_id
    record = json.loads(reading.store.read(JobObjects(job_id).handle))
    nested = b'{"labels": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    bombs = [
        *(json.dumps({**record, **fields}).encode() for fields in HOSTILE),
        nested, b"", b"\xff" * 100, b"null", b'{"job_id": "a", "job_id": "b"}',
    ]  # fmt: skip
    for number, data in enumerate(bombs):
        fake = f"cpu-f-20260101-000000-{number:07x}"
        own = data.replace(job_id.encode(), fake.encode())
        reading.write(JobObjects(fake).handle, own)
        reading.write(
            JobObjects(fake).outcome, b'{"job_id": "%s", "status": "succeeded"}' % fake.encode()
        )

    listed = kinetic.list_jobs()
    statuses = dict(zip([job.job_id for job in listed], statuses_of(listed), strict=True))

    assert statuses.pop(job_id) is JobStatus.SUCCEEDED
    assert all(isinstance(status, SignatureError) for status in statuses.values())


# Escape


def test_control_characters_in_the_bucket_never_reach_a_terminal(reading: Attacker) -> None:
    nasty = "\x1b]0;owned\x07\x1b[2J\x9b2J\u202e"
    job_id, names = reading.job_id, reading.names
    log = f"\x1b[32mgreen\x1b[0m {nasty} end\r\n".encode()
    reading.write(f"{names.log_chunks(1, 0)}00000001", log)
    reading.write(f"{nasty}/handle.json", b"{}")
    reading.write(f"{names.attempts}{nasty}/host-0.json", b"{}")
    reading.write(f"{names.logs}{nasty}/host-0/00000000", log)
    fake = JobObjects("cpu-f-20260101-000000-abcdef0")
    record = json.loads(reading.store.read(names.handle))
    record |= {"job_id": fake.job_id, "func_name": nasty, "display_name": nasty, "backend": nasty}
    reading.write(fake.handle, json.dumps(record).encode())
    reading.write(f"{fake.log_chunks(1, 0)}00000000", log)
    with reading.away():
        environment = dict(os.environ)  # noqa: TID251

        for command, trust in [
            *itertools.product((["list"], ["status", job_id], ["status", fake.job_id]), ("1", "")),
            (["logs", job_id], ""),
            (["logs", fake.job_id], ""),
            (["result", "--no-cleanup", job_id], "1"),
        ]:
            done = subprocess.run(
                [sys.executable, "-m", "kinetic_cli", "jobs", *command],
                env={**environment, "KINETIC_TRUST_BUCKET": trust}, capture_output=True, check=False,
            )  # fmt: skip
            printed = (done.stdout + done.stderr).decode()
            colours = re.compile(r"\x1b\[[0-9;]*m")
            rest = colours.sub("", printed) if command[0] == "logs" else printed
            assert not set("\x1b\x07\x9b\u202e") & set(rest), (command, rest)
            if command == ["logs", job_id]:
                assert "\x1b[32mgreen\x1b[0m \\x1b]0;owned" in printed


# Hang


def test_junk_beside_a_job_costs_few_requests_and_changes_nothing(reading: Attacker) -> None:
    job_id, names = reading.job_id, reading.names
    odd = ("x", "01", "-1", "1" * 30, "\u0661", "99999999999", " 1")
    junk = [
        *(f"{names.attempts}{text}/host-0.json" for text in odd),
        *(f"{names.attempts}1/host-{text}.json" for text in odd),
        *(f"{names.logs}{text}/host-0/00000000" for text in odd),
        *(f"{names.logs}1/host-{text}/00000000" for text in odd),
        *(f"{names.log_chunks(1, 0)}{text}" for text in ("x", "0", "000000000", "zzzzzzzz")),
        *(f"{text * 20}/handle.json" for text in "abc"),
        *(f"{number:0300}/handle.json" for number in range(100)),
        *(f"{job_id}-{number}/handle.json" for number in range(100)),
        *(f"{names.prefix}{number}" for number in range(100)),
        *(f"{number:0100}/x" for number in range(1100)),  # More than a page of a list.
    ]
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda name: reading.write(name, b"x"), junk))
    reading.desk.server.requests.clear()

    [job] = kinetic.list_jobs()
    assert reading.desk.server.requests.count(operation="objects.list") < 10
    assert reading.desk.server.requests.count() == reading.desk.server.requests.count(
        operation="objects.list"
    )
    assert job.status() is JobStatus.SUCCEEDED
    with warnings.catch_warnings(action="error"):
        assert [host.attempt for host in job.outcome().hosts] == [1]
    log = [line.text for line in stored_lines(reading.store, job_id, 1)]
    assert log == ["\x1b[31mworking\x1b[0m"]
    assert reading.desk.server.requests.count(operation="objects.get.media") < 10
    assert job.result(timeout=60, cleanup=False) == VALUE


def test_a_log_that_keeps_growing_ends_with_its_job(reading: Attacker) -> None:
    job_id, names = reading.job_id, reading.names
    reading.move()
    more = itertools.count(1)
    lines = 0

    for _ in kinetic.attach(job_id).log_lines(follow=True):
        lines += 1
        for _ in range(5):
            reading.write(names.log_chunk(1, 0, next(more)), b"and on\n")
        assert lines < 100

    assert lines >= 1
