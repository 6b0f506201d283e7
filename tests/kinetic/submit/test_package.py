from __future__ import annotations

import hashlib
import io
import sys
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
from kinetic.submit.package import Call, PackagedCall, PackageOptions, package, plan_of, upload
from kinetic.testing.fakes import FakeStore
from kinetic_payload.calls.call import CallHeader, read_header
from kinetic_payload.errors import TreeChangedError
from kinetic_payload.layout import JobObjects, context_object
from kinetic_payload.progress import Advance
from kinetic_payload.project.snapshot import Snapshot

JOB = "cpu-f-20260101-000000-abcdef0"


class Packages:
    """Packages calls with the same options, and keeps what was reported."""

    def __init__(self, root: Path, home: Path) -> None:
        self.options = PackageOptions(
            home=home,
            cwd=root,
            user_home=root.parent / "me",
            root=None,
            no_default_excludes=False,
            context_warn_mb=100,
            payload_warn_mb=50,
            kinetic_version="0",
        )
        self.checked: list[Data] = []
        self.reported: list[str] = []
        self.warned: list[str] = []
        self.packed: list[PackagedCall] = []

    def package(self, function: Any, *args: Any, **volumes: Data) -> PackagedCall:
        call = Call(function=function, args=args, kwargs={}, volumes=volumes)
        plan = plan_of(call, self.options)
        packed = package(
            call, plan, self.options, check=self.checked.append, warn=self.warned.append
        )
        self.packed.append(packed)
        return packed

    def upload(self, packed: PackagedCall, store: FakeStore, job_id: str = JOB) -> tuple[str, str]:
        options, report = self.options, self.reported.append
        sent = upload(packed, store, job_id, options, report=report, warn=self.warned.append)
        return sent.payload_digest, sent.context_digest or ""


@pytest.fixture
def packages(project, tmp_path: Path) -> Iterator[Packages]:
    made = Packages(project.root, tmp_path / "home")
    yield made
    for packed in made.packed:
        packed.call.close()


def header_in(store: FakeStore, job_id: str = JOB) -> CallHeader:
    return read_header(io.BytesIO(store.read(JobObjects(job_id).payload)))


def pack_in(store: FakeStore, digest: str | None) -> zipfile.ZipFile:
    return zipfile.ZipFile(io.BytesIO(store.read(f"data/{digest}/packs/00000.zip")))


def archive_in(store: FakeStore, digest: str) -> zipfile.ZipFile:
    return zipfile.ZipFile(io.BytesIO(store.read(context_object(digest))))


def test_a_call_is_uploaded_as_a_context_and_a_payload_that_names_it(
    project, packages: Packages
) -> None:
    module, store = project.module("jobs", "def work(x):\n    return x\n"), FakeStore()

    payload, context = packages.upload(packages.package(module.work, 1), store)

    names = JobObjects(JOB)
    assert store.names() == sorted([context_object(context), names.payload])
    assert payload == hashlib.sha256(store.read(names.payload)).hexdigest()
    header = header_in(store)
    assert (header.function, header.context_digest) == ("work", context)
    assert header.paths == ("",)
    assert f"{project.package}/jobs.py" in archive_in(store, context).namelist()


@pytest.mark.parametrize("remote", [False, True])
def test_a_file_that_changes_after_the_snapshot_is_uploaded_as_it_is_then(
    project, packages: Packages, remote: bool
) -> None:
    module, store = project.module("jobs", "def work(): ...\n"), FakeStore(remote=remote)
    project.write("data.txt", "before")
    packed = packages.package(module.work)
    project.write("data.txt", "after!")
    if remote:  # The payload is uploaded before the change is noticed.
        written = threading.Event()
        store.journal.after("write */payload.pkl", written.set)
        store.journal.before("write contexts/*", lambda: written.wait(60))

    payload, context = packages.upload(packed, store)

    assert context != packed.snapshot.digest
    assert archive_in(store, context).read("data.txt") == b"after!"
    assert header_in(store).context_digest == context
    assert payload == hashlib.sha256(store.read(JobObjects(JOB).payload)).hexdigest()
    assert store.names() == sorted([context_object(context), JobObjects(JOB).payload])


def test_a_project_that_changes_all_the_time_is_refused_with_a_hint(
    project, packages: Packages
) -> None:
    module, store = project.module("jobs", "def work(): ...\n"), FakeStore()
    log = project.write("train.log", "before")
    packed, turns = packages.package(module.work), []

    def restless() -> Snapshot:
        taken = packed.retake()
        turns.append(log.write_text(f"line {len(turns)}"))
        return taken

    log.write_text("begun")

    with pytest.raises(PackagingError, match=r"train\.log") as caught:
        packages.upload(replace(packed, retake=restless), store)

    assert caught.value.hint
    assert len(turns) == 2
    assert store.names() == []


def test_a_payload_is_written_once(project, packages: Packages) -> None:
    module, store = project.module("jobs", "def work(): ...\n"), FakeStore()
    packed = packages.package(module.work)
    packages.upload(packed, store)

    with pytest.raises(PreconditionFailedError):
        packages.upload(packed, store)


def test_data_is_uploaded_separately_from_the_project(project, packages: Packages) -> None:
    module, store = project.module("jobs", "def work(data): ...\n"), FakeStore()
    project.write("set/one.txt", "1")
    data = Data(str(project.root / "set"))

    for job_id in ("one", "two"):
        _, context = packages.upload(packages.package(module.work, [data, data]), store, job_id)

    assert packages.checked == [data, data]
    assert "set/one.txt" not in archive_in(store, context).namelist()
    [ref] = header_in(store, "one").data
    assert store.journal.of("write data*") == [
        f"write data/{ref.digest}/packs/00000.zip",
        f"write data-markers/{ref.digest}",
    ]


def test_the_same_data_in_several_places_is_uploaded_once(project, packages: Packages) -> None:
    module, store = project.module("jobs", "def work(*data): ...\n"), FakeStore()
    project.write("set/one.txt", "1")
    path = str(project.root / "set")
    packed = packages.package(module.work, Data(path), Data(path), **{"/data": Data(path)})

    packages.upload(packed, store)

    assert [ref.mount for ref in header_in(store).data] == ["/data", None, None]
    assert len({ref.digest for ref in header_in(store).data}) == 1
    assert len(store.journal.of("write data/*")) == 1


def test_a_file_of_data_that_is_left_out_is_a_warning(project, packages: Packages) -> None:
    module, store = project.module("jobs", "def work(data): ...\n"), FakeStore()
    project.write("set/one.txt", "1")
    (project.root / "set" / "gone").symlink_to("/nowhere/at/all")

    packages.upload(packages.package(module.work, Data(str(project.root / "set"))), store)

    [warning] = packages.warned
    assert "'gone' (a link that leads nowhere)" in warning


def test_data_that_changes_during_its_upload_is_uploaded_as_it_is_then(
    project, packages: Packages
) -> None:
    module, store = project.module("jobs", "def work(data): ...\n"), FakeStore()
    file = project.write("set/one.txt", "1")
    packed = packages.package(module.work, Data(str(project.root / "set")))
    # After its digest is computed, and before it is read.
    store.journal.before("read data-markers/*", lambda: file.write_text("2"))

    packages.upload(packed, store)

    [ref] = header_in(store).data
    assert pack_in(store, ref.digest).read("one.txt") == b"2"


def test_data_that_changes_all_the_time_is_refused_by_name(project, packages: Packages) -> None:
    module, store = project.module("jobs", "def work(data): ...\n"), FakeStore()
    file = project.write("set/one.txt", "1")
    packed = packages.package(module.work, Data(str(project.root / "set")))
    for text in ("2", "3", "4"):
        store.journal.before("read data-markers/*", partial(file.write_text, text))

    with pytest.raises(TreeChangedError, match=r"Data\('.*/set'\) .*'one.txt' changed") as raised:
        packages.upload(packed, store)

    assert "nothing writes to it" in (raised.value.hint or "")


def test_a_function_of_a_module_inside_data_is_pickled_by_value(
    project, packages: Packages
) -> None:
    module = project.module("jobs", "def work(help, data): ...\n")
    project.write(f"{project.package}/set/__init__.py", "")
    helper = project.module("set.helper", "def help():\n    return 'the marker'\n")
    data = Data(str(project.root / project.package / "set"))

    # A module in the snapshot is pickled by its name.
    assert b"the marker" not in packages.package(module.work, helper.help, None).call.pickle
    assert b"the marker" in packages.package(module.work, helper.help, data).call.pickle


def test_home_and_key_are_not_shipped_with_the_project(
    project, packages: Packages, tmp_path: Path
) -> None:
    module = project.module("jobs", "def work(): ...\n")
    packages.options = replace(packages.options, home=project.root / "home")
    first = packages.package(module.work).snapshot
    project.write("home/store/job/payload.pkl", "large")
    assert packages.package(module.work).snapshot.digest == first.digest

    home = tmp_path / "kinetic"
    (home / "jobs").mkdir(parents=True)
    (home / "key").write_text("secret")
    (home / "jobs" / "note").touch()
    packages.options = replace(packages.options, home=home)
    for link, target in (("identity", home / "key"), ("seen", home / "jobs")):
        (project.root / link).symlink_to(target)
    shipped = {entry.path for entry in packages.package(module.work).snapshot.entries}
    assert "seen/note" in shipped
    assert "identity" not in shipped


def test_home_and_store_inside_data_are_not_uploaded(project, packages: Packages) -> None:
    module, store = project.module("jobs", "def work(data): ...\n"), FakeStore()
    project.write("set/one.txt", "1")
    project.write("set/.kinetic/key", "secret")
    project.write("set/objects/data/x", "large")
    folder = project.root / "set"
    packages.options = replace(packages.options, home=folder / ".kinetic", store=folder / "objects")

    packages.upload(packages.package(module.work, Data(str(folder))), store)

    [ref] = header_in(store).data
    assert pack_in(store, ref.digest).namelist() == ["one.txt"]
    assert packages.warned == []


@pytest.mark.parametrize(
    ("limits", "expected"),
    [({"context_warn_mb": 0.5, "payload_warn_mb": 0.5}, ["the project", "the call"]), ({}, [])],
)
def test_a_project_and_a_call_that_are_large_are_warnings(
    project, packages: Packages, limits: dict[str, float], expected: list[str]
) -> None:
    module = project.module("jobs", "def work(x): ...\n")
    project.write("big.bin", "x" * 600_000)
    packages.options = replace(packages.options, **limits)

    packages.package(module.work, bytes(600_000))

    assert [
        warning[: len(start)].lower()
        for warning, start in zip(packages.warned, expected, strict=True)
    ] == expected


@pytest.mark.parametrize("this_machine", [True, False])
def test_a_library_for_macos_is_a_warning_if_the_job_runs_on_linux(
    project, packages: Packages, this_machine: bool
) -> None:
    module = project.module("jobs", "def work(): ...\n")
    project.write("_fast.cpython-311-darwin.so", "")
    packages.options = replace(packages.options, this_machine=this_machine)

    packages.package(module.work)

    expected = sys.platform != "darwin" or not this_machine
    assert [w.partition(":")[0] for w in packages.warned] == [
        "_fast.cpython-311-darwin.so"
    ] * expected


def test_data_that_is_read_in_place_is_not_uploaded(
    project, packages: Packages, tmp_path: Path
) -> None:
    module, store = project.module("jobs", "def work(data): ...\n"), FakeStore()
    folder = tmp_path / "set"
    folder.mkdir()
    (folder / "one.txt").write_text("1")

    packages.upload(packages.package(module.work, Data(str(folder), fuse=True)), store)

    [ref] = header_in(store).data
    assert (ref.fuse, ref.local_path, ref.digest) == (True, str(folder), None)
    assert store.journal.of("write data*") == []


def test_project_and_data_are_uploaded_in_parallel_over_a_network(
    project, packages: Packages
) -> None:
    module, store = project.module("jobs", "def work(data): ...\n"), FakeStore(remote=True)
    project.write("set/one.txt", "1")
    data = Data(str(project.root / "set"))
    together = threading.Barrier(2)
    # Neither can end before the other has begun.
    store.journal.before("write contexts/*", lambda: together.wait(60))
    store.journal.before("write data/*", lambda: together.wait(60))

    payload, context = packages.upload(packages.package(module.work, data), store)

    assert header_in(store).context_digest == context
    assert payload == hashlib.sha256(store.read(JobObjects(JOB).payload)).hexdigest()
    [ref] = header_in(store).data
    assert f"data/{ref.digest}/packs/00000.zip" in store.names()


def test_the_progress_of_an_upload_is_tracked(project, packages: Packages) -> None:
    module, store = project.module("jobs", "def work(x): ...\n"), FakeStore(remote=True)
    done: dict[str, int] = {}
    totals: dict[str, int | None] = {}

    @contextmanager
    def track(doing: str, total: int | None) -> Iterator[Advance]:
        totals[doing] = total

        def advance(size: int) -> None:
            done[doing] = done.get(doing, 0) + size

        yield advance

    packed = packages.package(module.work, bytes(1_000_000))
    upload(packed, store, JOB, packages.options, report=packages.reported.append, track=track)

    assert done["uploading the call"] == len(store.read(JobObjects(JOB).payload))
    assert totals["uploading the call"] == packed.call.size
    assert done["uploading the project"] > 0
