from __future__ import annotations

import hashlib
import io
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kinetic import Data
from kinetic.errors import PackagingError, PreconditionFailedError
from kinetic.settings.settings import resolve
from kinetic.submit.package import Package
from kinetic.submit.warnings import Notices
from kinetic_payload.calls.call import CallHeader, read_header
from kinetic_payload.errors import TreeChangedError
from kinetic_payload.layout import JobObjects, context_object
from kinetic_payload.progress import Advance, TrackProgress, silent
from kinetic_payload.project.snapshot import Snapshot
from kinetic_payload.stores.store import Location
from kinetic_servers.fakes import FakeStore, a_request

JOB = "cpu-f-20260101-000000-abcdef0"


class At(FakeStore):
    """A store in a folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    @property
    def location(self) -> Location:
        return Location("folder", str(self.folder))


class Packages:
    """Packages and uploads calls of the function `work` of *project*, and keeps what was reported."""

    def __init__(self, project: Any, home: Path) -> None:
        self.project, self.root = project, project.root
        self.work = project.module("jobs", "def work(*args): ...\n").work
        self.store = FakeStore()
        self.home = home
        self.environ: dict[str, str] = {}
        self.backend = "local"
        self.checked: list[Data] = []
        self.warned: list[str] = []
        self.packed: list[Package] = []

    def data(self, *, fuse: bool = False) -> Data:
        """Return a folder of the project with one file."""
        self.project.write("set/one.txt", "1")
        return Data(str(self.root / "set"), fuse=fuse)

    def package(self, *args: Any, track: TrackProgress = silent, **volumes: Data) -> Package:
        environ = {"KINETIC_HOME": str(self.home), **self.environ}
        settings = resolve({}, environ=environ, user_home=self.root.parent / "me")
        request = replace(a_request(), settings=settings, backend=self.backend, volumes=volumes)
        notices = Notices(self.warned.append, [].append, [].append, track)
        packed = Package(request, self.work, args, {}, self.store, notices)
        self.packed.append(packed)
        packed.pack(self.checked.append)
        return packed

    def header(self, job_id: str = JOB) -> CallHeader:
        return read_header(io.BytesIO(self.store.read(JobObjects(job_id).payload)))

    def archive(self, name: str) -> zipfile.ZipFile:
        return zipfile.ZipFile(io.BytesIO(self.store.read(name)))

    def context(self) -> zipfile.ZipFile:
        return self.archive(context_object(self.header().context_digest or ""))

    def pack(self) -> zipfile.ZipFile:
        """Return the uploaded files of the only data."""
        [ref] = self.header().data
        return self.archive(f"data/{ref.digest}/packs/00000.zip")


@pytest.fixture
def packages(project, tmp_path: Path) -> Iterator[Packages]:
    made = Packages(project, tmp_path / "home")
    yield made
    for packed in made.packed:
        packed.close()


def test_a_call_is_uploaded_as_a_context_and_a_payload_that_names_it(packages: Packages) -> None:
    sent = packages.package(1)
    sent.upload(JOB)

    names = JobObjects(JOB)
    assert packages.store.names() == sorted([context_object(sent.context_digest), names.payload])
    assert sent.payload_digest == hashlib.sha256(packages.store.read(names.payload)).hexdigest()
    header = packages.header()
    assert (header.function, header.context_digest) == ("work", sent.context_digest)
    assert header.paths == ("",)
    assert f"{packages.project.package}/jobs.py" in packages.context().namelist()


@pytest.mark.parametrize("remote", [False, True])
def test_a_file_that_changes_after_the_snapshot_is_uploaded_as_it_is_then(
    packages: Packages, remote: bool
) -> None:
    packages.store = store = FakeStore(remote=remote)
    packages.project.write("data.txt", "before")
    sent = packages.package()
    before = sent.context_digest
    packages.project.write("data.txt", "after!")
    if remote:  # The payload is uploaded before the change is noticed.
        written = threading.Event()
        store.journal.after("write */payload.pkl", written.set)
        store.journal.before("write contexts/*", lambda: written.wait(60))

    sent.upload(JOB)

    assert sent.context_digest != before
    assert packages.context().read("data.txt") == b"after!"
    assert sent.payload_digest == hashlib.sha256(store.read(JobObjects(JOB).payload)).hexdigest()
    assert store.names() == sorted([context_object(sent.context_digest), JobObjects(JOB).payload])


def test_a_project_that_changes_all_the_time_is_refused_with_a_hint(packages: Packages) -> None:
    log = packages.project.write("train.log", "before")
    packed, turns = packages.package(), []
    take = packed.take_snapshot

    def restless() -> Snapshot:
        taken = take()
        turns.append(log.write_text(f"line {len(turns)}"))
        return taken

    log.write_text("begun")
    packed.take_snapshot = restless

    with pytest.raises(PackagingError, match=r"train\.log") as caught:
        packed.upload(JOB)

    assert caught.value.hint
    assert len(turns) == 2
    assert packages.store.names() == []


def test_a_payload_is_written_once(packages: Packages) -> None:
    packed = packages.package()
    packed.upload(JOB)

    with pytest.raises(PreconditionFailedError):
        packed.upload(JOB)


def test_data_is_uploaded_once_and_separately_from_the_project(packages: Packages) -> None:
    data = packages.data()
    same = Data(data.path)

    for job_id in (JOB, "two"):
        packages.package([data, data], same, **{"/data": data}).upload(job_id)

    # A volume may be the same object as an argument.
    assert {id(each) for each in packages.checked} == {id(data), id(same)}
    assert "set/one.txt" not in packages.context().namelist()
    refs = packages.header().data
    assert sorted(str(ref.mount) for ref in refs) == ["/data", "None", "None"]
    [digest] = {ref.digest for ref in refs}
    assert packages.store.journal.of("write data*") == [
        f"write data/{digest}/packs/00000.zip",
        f"write data-markers/{digest}",
    ]


def test_a_file_of_data_that_is_left_out_is_a_warning(packages: Packages) -> None:
    data = packages.data()
    (Path(data.path) / "gone").symlink_to("/nowhere/at/all")

    packages.package(data).upload(JOB)

    [warning] = packages.warned
    assert "'gone' (a link that leads nowhere)" in warning


def test_data_that_changes_during_its_upload_is_uploaded_as_it_is_then(packages: Packages) -> None:
    data = packages.data()
    packed = packages.package(data)
    # After its digest is computed, and before it is read.
    change = partial((Path(data.path) / "one.txt").write_text, "2")
    packages.store.journal.before("read data-markers/*", change)

    packed.upload(JOB)

    assert packages.pack().read("one.txt") == b"2"


def test_data_that_changes_all_the_time_is_refused_by_name(packages: Packages) -> None:
    data = packages.data()
    packed = packages.package(data)
    for text in ("2", "3", "4"):
        change = partial((Path(data.path) / "one.txt").write_text, text)
        packages.store.journal.before("read data-markers/*", change)

    with pytest.raises(TreeChangedError, match=r"Data\('.*/set'\) .*'one.txt' changed") as raised:
        packed.upload(JOB)

    assert "nothing writes to it" in (raised.value.hint or "")


def test_data_that_is_read_in_place_is_not_uploaded(packages: Packages) -> None:
    data = packages.data(fuse=True)

    packages.package(data).upload(JOB)

    [ref] = packages.header().data
    assert (ref.fuse, ref.local_path, ref.digest) == (True, data.path, None)
    assert packages.store.journal.of("write data*") == []


def test_a_function_of_a_module_inside_data_is_pickled_by_value(packages: Packages) -> None:
    project = packages.project
    project.write(f"{project.package}/set/__init__.py", "")
    helper = project.module("set.helper", "def help():\n    return 'the marker'\n")
    data = Data(str(project.root / project.package / "set"))

    # A module in the snapshot is pickled by its name.
    by_name, by_value = io.BytesIO(), io.BytesIO()
    for argument, stream in ((None, by_name), (data, by_value)):
        call = packages.package(helper.help, argument).call
        call.write(stream, refs=(), context_digest=None, kinetic_version="0")
    assert b"the marker" not in by_name.getvalue()
    assert b"the marker" in by_value.getvalue()


def test_home_and_key_are_not_shipped_with_the_project(packages: Packages, tmp_path: Path) -> None:
    packages.home = packages.root / "home"
    first = packages.package().snapshot
    packages.project.write("home/store/job/payload.pkl", "large")
    assert packages.package().snapshot.digest == first.digest

    home = tmp_path / "kinetic"
    (home / "jobs").mkdir(parents=True)
    (home / "key").write_text("secret")
    (home / "jobs" / "note").touch()
    packages.home = home
    for link, target in (("identity", home / "key"), ("seen", home / "jobs")):
        (packages.root / link).symlink_to(target)
    shipped = {entry.path for entry in packages.package().snapshot.entries}
    assert "seen/note" in shipped
    assert "identity" not in shipped


def test_home_and_store_inside_data_are_not_uploaded(packages: Packages) -> None:
    data = packages.data()
    packages.project.write("set/.kinetic/key", "secret")
    packages.project.write("set/objects/data/x", "large")
    folder = Path(data.path)
    packages.home = folder / ".kinetic"
    packages.store = At(folder / "objects")

    packages.package(data).upload(JOB)

    assert packages.pack().namelist() == ["one.txt"]
    assert packages.warned == []


@pytest.mark.parametrize(("limit", "expected"), [("0.5", ["the project", "the call"]), ("100", [])])
def test_a_large_project_and_a_large_call_are_warnings(
    packages: Packages, limit: str, expected: list[str]
) -> None:
    packages.project.write("big.bin", "x" * 600_000)
    for what in ("CONTEXT", "PAYLOAD"):
        packages.environ[f"KINETIC_{what}_SIZE_WARN_MB"] = limit

    packages.package(bytes(600_000))

    assert len(packages.warned) == len(expected)
    for warning, start in zip(packages.warned, expected, strict=True):
        assert warning.lower().startswith(start)


def test_project_and_data_are_uploaded_in_parallel_over_a_network(packages: Packages) -> None:
    packages.store = FakeStore(remote=True)
    packed = packages.package(packages.data())
    together = threading.Barrier(2)
    # Neither can end before the other has begun.
    packages.store.journal.before("write contexts/*", lambda: together.wait(60))
    packages.store.journal.before("write data/*", lambda: together.wait(60))

    packed.upload(JOB)

    assert packages.header().context_digest == packed.context_digest
    assert packages.pack().namelist() == ["one.txt"]


def test_the_progress_of_an_upload_is_tracked(packages: Packages) -> None:
    done: dict[str, int] = {}
    totals: dict[str, int | None] = {}

    @contextmanager
    def track(doing: str, total: int | None) -> Iterator[Advance]:
        totals[doing] = total

        def advance(size: int) -> None:
            done[doing] = done.get(doing, 0) + size

        yield advance

    packed = packages.package(bytes(1_000_000), track=track)
    packed.upload(JOB)

    assert done["uploading the call"] == len(packages.store.read(JobObjects(JOB).payload))
    assert totals["uploading the call"] == packed.call.size
    assert done["uploading the project"] > 0
