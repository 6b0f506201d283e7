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
from kinetic.errors import PackagingError, PayloadError, PreconditionFailedError
from kinetic.submit.package import Call, PackagedCall, PackageOptions, package, plan_of, upload
from kinetic.testing.fakes import FakeStore
from kinetic_payload.calls.call import CallHeader, read_header
from kinetic_payload.errors import TreeChangedError
from kinetic_payload.layout import JobObjects, context_object
from kinetic_payload.progress import Advance
from kinetic_payload.project.snapshot import Snapshot

JOB = "cpu-f-20260101-000000-abcdef0"


class Packages:
    """What stands around a call: where the user is, and what was said."""

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
        self.said: list[str] = []
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
        options, said = self.options, self.said.append
        sent = upload(packed, store, job_id, options, report=said, warn=self.warned.append)
        return sent.payload_digest, sent.context_digest or ""


@pytest.fixture
def packages(project, tmp_path: Path) -> Iterator[Packages]:
    made = Packages(project.root, tmp_path / "home")
    yield made
    for packed in made.packed:
        packed.call.close()


def header_in(store: FakeStore, job_id: str = JOB) -> CallHeader:
    return read_header(io.BytesIO(store.read(JobObjects(job_id).payload)))


def archive_in(store: FakeStore, digest: str) -> zipfile.ZipFile:
    return zipfile.ZipFile(io.BytesIO(store.read(context_object(digest))))


def test_a_call_goes_up_as_a_context_and_a_payload_that_names_it(
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


def test_an_unchanged_project_goes_up_once(project, packages: Packages) -> None:
    module, store = project.module("jobs", "def work(x):\n    return x\n"), FakeStore()

    first = packages.upload(packages.package(module.work, 1), store, "one")
    (project.root / project.package / "jobs.py").touch()
    second = packages.upload(packages.package(module.work, 2), store, "two")

    assert first[1] == second[1]
    assert len(store.journal.of("write contexts/*")) == 1
    assert [said for said in packages.said if "Uploaded" in said] == packages.said[:1]


def test_a_file_that_changes_after_the_snapshot_goes_up_as_it_is_then(
    project, packages: Packages
) -> None:
    module, store = project.module("jobs", "def work(): ...\n"), FakeStore()
    project.write("data.txt", "before")
    packed = packages.package(module.work)
    project.write("data.txt", "after!")

    _, context = packages.upload(packed, store)

    assert context != packed.snapshot.digest
    assert archive_in(store, context).read("data.txt") == b"after!"
    assert header_in(store).context_digest == context
    assert store.names() == sorted([context_object(context), JobObjects(JOB).payload])


def test_a_project_that_never_stands_still_is_given_up_in_words(
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


def test_what_will_not_pickle_is_named_and_nothing_goes_up(project, packages: Packages) -> None:
    module = project.module("jobs", "def work(config): ...\n")

    with pytest.raises(PayloadError, match=r"\['lock'\]"):
        packages.package(module.work, {"lock": __import__("threading").Lock()})


def test_data_goes_up_by_itself_and_not_with_the_project(project, packages: Packages) -> None:
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


def test_the_same_data_in_several_places_goes_up_once(project, packages: Packages) -> None:
    module, store = project.module("jobs", "def work(*data): ...\n"), FakeStore()
    project.write("set/one.txt", "1")
    path = str(project.root / "set")
    packed = packages.package(module.work, Data(path), Data(path), **{"/data": Data(path)})

    packages.upload(packed, store)

    assert len(header_in(store).data) == 3
    assert len({ref.digest for ref in header_in(store).data}) == 1
    assert len(store.journal.of("write data/*")) == 1


def test_what_of_data_does_not_travel_is_a_warning(project, packages: Packages) -> None:
    module, store = project.module("jobs", "def work(data): ...\n"), FakeStore()
    project.write("set/one.txt", "1")
    (project.root / "set" / "gone").symlink_to("/nowhere/at/all")

    packages.upload(packages.package(module.work, Data(str(project.root / "set"))), store)

    [warning] = packages.warned
    assert "'gone' (a link that leads nowhere)" in warning


def test_data_that_never_stands_still_is_given_up_by_name(project, packages: Packages) -> None:
    module, store = project.module("jobs", "def work(data): ...\n"), FakeStore()
    file = project.write("set/one.txt", "1")
    packed = packages.package(module.work, Data(str(project.root / "set")))
    for text in ("2", "3", "4"):
        store.journal.before("read data-markers/*", partial(file.write_text, text))

    with pytest.raises(TreeChangedError, match=r"Data\('.*/set'\) .*'one.txt' changed") as raised:
        packages.upload(packed, store)

    assert "nothing writes to it" in (raised.value.hint or "")


def test_data_that_changes_while_it_is_uploaded_goes_up_as_it_is_then(
    project, packages: Packages
) -> None:
    module, store = project.module("jobs", "def work(data): ...\n"), FakeStore()
    file = project.write("set/one.txt", "1")
    packed = packages.package(module.work, Data(str(project.root / "set")))
    # What is asked for once its digest is known, and before it is read.
    store.journal.before("read data-markers/*", lambda: file.write_text("2"))

    packages.upload(packed, store)

    [ref] = header_in(store).data
    with zipfile.ZipFile(io.BytesIO(store.read(f"data/{ref.digest}/packs/00000.zip"))) as archive:
        assert archive.read("one.txt") == b"2"


def test_volumes_are_data_with_a_place(project, packages: Packages) -> None:
    module, store = project.module("jobs", "def work(): ...\n"), FakeStore()
    project.write("set/one.txt", "1")

    packages.upload(
        packages.package(module.work, **{"/data": Data(str(project.root / "set"))}), store
    )

    assert [ref.mount for ref in header_in(store).data] == ["/data"]


def test_a_function_of_a_module_inside_a_data_travels_with_the_call(
    project, packages: Packages
) -> None:
    module = project.module("jobs", "def work(help, data): ...\n")
    project.write(f"{project.package}/set/__init__.py", "")
    helper = project.module("set.helper", "def help():\n    return 'the marker'\n")
    data = Data(str(project.root / project.package / "set"))

    # Where the module is in the snapshot, its name is enough.
    assert b"the marker" not in packages.package(module.work, helper.help, None).call.pickle
    assert b"the marker" in packages.package(module.work, helper.help, data).call.pickle


def test_a_home_inside_the_project_is_no_part_of_it(project, packages: Packages) -> None:
    module = project.module("jobs", "def work(): ...\n")
    packages.options = replace(packages.options, home=project.root / "home")
    first = packages.package(module.work).snapshot
    project.write("home/store/job/payload.pkl", "large")

    assert packages.package(module.work).snapshot.digest == first.digest


def test_the_key_does_not_travel_in_place_of_a_link(project, packages: Packages, tmp_path) -> None:
    module = project.module("jobs", "def work(): ...\n")
    home = tmp_path / "kinetic"
    (home / "jobs").mkdir(parents=True)
    (home / "key").write_text("secret")
    (home / "jobs" / "note").touch()
    packages.options = replace(packages.options, home=home)
    for link, goal in (("identity", home / "key"), ("seen", home / "jobs")):
        (project.root / link).symlink_to(goal)

    travelling = {entry.path for entry in packages.package(module.work).snapshot.entries}

    assert "seen/note" in travelling
    assert "identity" not in travelling


def test_a_home_inside_a_data_does_not_go_up(project, packages: Packages) -> None:
    module, store = project.module("jobs", "def work(data): ...\n"), FakeStore()
    project.write("set/one.txt", "1")
    project.write("set/.kinetic/key", "secret")
    project.write("set/objects/data/x", "large")
    folder = project.root / "set"
    packages.options = replace(packages.options, home=folder / ".kinetic", store=folder / "objects")

    packages.upload(packages.package(module.work, Data(str(folder))), store)

    [ref] = header_in(store).data
    pack_in = io.BytesIO(store.read(f"data/{ref.digest}/packs/00000.zip"))
    assert zipfile.ZipFile(pack_in).namelist() == ["one.txt"]
    assert packages.warned == []


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"context_warn_mb": 0.5}, ["the project"]),
        ({"payload_warn_mb": 0.5}, ["the call"]),
        ({"context_warn_mb": 0.5, "payload_warn_mb": 0.5}, ["the project", "the call"]),
        ({}, []),
    ],
)
def test_what_is_large_is_told_before_it_is_sent(
    project, packages: Packages, limits: dict[str, float], said: list[str]
) -> None:
    module = project.module("jobs", "def work(x): ...\n")
    project.write("big.bin", "x" * 600_000)
    packages.options = replace(packages.options, **limits)

    packages.package(module.work, bytes(600_000))

    assert len(packages.warned) == len(said)
    for warning, what in zip(packages.warned, said, strict=True):
        assert warning.lower().startswith(what)


@pytest.mark.parametrize("this_machine", [True, False])
def test_what_was_built_for_macos_is_named_where_the_job_runs_on_linux(
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


def test_the_root_may_be_named(project, packages: Packages) -> None:
    module = project.module("jobs", "def work(): ...\n")
    inner = project.root / project.package
    packages.options = replace(packages.options, root=str(inner))

    snapshot = packages.package(module.work).snapshot

    assert snapshot.root == inner
    assert snapshot.contains(inner / "jobs.py")


def test_what_is_shown_where_it_lies_is_not_sent(
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


# Over a network


def test_project_data_and_call_go_up_together(project, packages: Packages) -> None:
    module, store = project.module("jobs", "def work(data): ...\n"), FakeStore(remote=True)
    project.write("set/one.txt", "1")
    data = Data(str(project.root / "set"))
    together = threading.Barrier(2)
    # Neither is done before the other has begun.
    store.journal.before("write contexts/*", lambda: together.wait(60))
    store.journal.before("write data/*", lambda: together.wait(60))

    payload, context = packages.upload(packages.package(module.work, data), store)

    assert header_in(store).context_digest == context
    assert payload == hashlib.sha256(store.read(JobObjects(JOB).payload)).hexdigest()
    [ref] = header_in(store).data
    assert f"data/{ref.digest}/packs/00000.zip" in store.names()


def test_a_call_names_the_project_that_went_up_also_where_it_changed_meanwhile(
    project, packages: Packages
) -> None:
    module, store = project.module("jobs", "def work(): ...\n"), FakeStore(remote=True)
    project.write("data.txt", "before")
    packed = packages.package(module.work)
    project.write("data.txt", "after!")
    # The call is there before anybody knows that the project changed.
    written = threading.Event()
    store.journal.after("write */payload.pkl", written.set)
    store.journal.before("write contexts/*", lambda: written.wait(60))

    payload, context = packages.upload(packed, store)

    assert context != packed.snapshot.digest
    assert header_in(store).context_digest == context
    assert archive_in(store, context).read("data.txt") == b"after!"
    assert payload == hashlib.sha256(store.read(JobObjects(JOB).payload)).hexdigest()


def test_bytes_on_their_way_are_told_in_total(project, packages: Packages) -> None:
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
    upload(packed, store, JOB, packages.options, report=packages.said.append, track=track)

    assert done["uploading the call"] == len(store.read(JobObjects(JOB).payload))
    assert totals["uploading the call"] == packed.call.size
    assert done["uploading the project"] > 0
