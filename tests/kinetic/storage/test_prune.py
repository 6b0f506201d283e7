"""Pruning of a folder store whose files are given any age."""

from __future__ import annotations

import json
import os
import time
from datetime import timedelta
from pathlib import Path

import pytest

from kinetic.errors import InvalidRequestError, JobError
from kinetic.retention.removal import remove, units_of
from kinetic.settings.settings import Settings, resolve
from kinetic.storage import prune
from kinetic.storage.prune import PruneOptions, prepare_prune
from kinetic_payload.data.marker import Sizes, parse_marker
from kinetic_payload.data.upload import ensure_data
from kinetic_payload.layout import (
    JobObjects,
    context_object,
    context_part,
    context_parts,
    data_marker,
    data_pack,
    data_prefix,
)
from kinetic_payload.project.context import ensure_context
from kinetic_payload.project.snapshot import take_snapshot
from kinetic_payload.records.batch import GroupManifest
from kinetic_payload.records.encode import encode
from kinetic_payload.stores.folder.store import FolderStore
from kinetic_servers.fakes import a_record
from kinetic_servers.launches import a_payload

MONTH = timedelta(days=30)


class Shelf:
    """A home with a folder store."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = FolderStore(folder / "store")
        self.settings: Settings = resolve(
            {"backend": "local"}, environ={"KINETIC_HOME": str(folder), "HOME": str(folder)}
        )

    def age(self, prefix: str = "", days: float = 40) -> None:
        """Let objects be that old."""
        when = time.time() - days * 86_400
        for info in self.store.list(prefix):
            os.utime(self.folder / "store" / info.name, (when, when))

    def put_job(self, job_id: str, digest: str, *, ended: bool, **fields: str) -> JobObjects:
        """Write the objects of a job with a context and data of *digest*, 40 days old."""
        names = JobObjects(job_id)
        record = a_record(job_id=job_id, backend="local", context_digest=digest, **fields)
        written = {
            names.handle: encode(record),
            names.payload: a_payload(digest),
            names.log_chunk(1, 0, 0): b"log",
            f"{names.outputs}model": b"weights",
            context_object(digest): b"zip",
            data_pack(digest, 0): b"data",
            data_marker(digest): b"marker",
        }
        for name, data in (written | ({names.outcome: b"{}"} if ended else {})).items():
            self.store.write(name, data)
        self.age()
        return names

    def prune(self, *kinds: str, older_than: timedelta | None = MONTH) -> dict[str, int]:
        """Return how many items of each kind went; as many as were planned."""
        pruning = prepare_prune(self.settings, PruneOptions(kinds=kinds, older_than=older_than))
        went = {removal.what: removal.items for removal in pruning.apply()}
        assert pruning.problems == []
        assert went == {removal.what: removal.items for removal in pruning.plan}
        return went

    def names(self) -> set[str]:
        return {info.name for info in self.store.list()}


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


RUNNING, ENDED = "cpu-run-20260101-000000-abcdef0", "cpu-end-20260101-000000-abcdef1"
A, B, C = "a" * 64, "b" * 64, "c" * 64


def test_what_is_named_goes_except_what_a_running_job_needs(shelf: Shelf) -> None:
    shelf.put_job(RUNNING, A, ended=False)
    kept = shelf.names()
    ended = shelf.put_job(ENDED, B, ended=True)
    foreign = {"contexts/thesis.zip", f"{data_prefix(B)}notes.txt", f"{ended.prefix}notes.txt"}
    for name in foreign:
        shelf.store.write(name, b"theirs")
    shelf.age()
    shelf.store.write(context_object(C), b"young")

    went = shelf.prune("contexts", "data", "logs", "jobs", "outputs")

    assert went == {"contexts": 1, "data": 1, "logs": 1, "jobs": 1, "outputs": 1}
    assert shelf.names() == kept | foreign | {context_object(C)}


def test_outputs_with_which_a_running_job_goes_on_stay(shelf: Shelf) -> None:
    names = shelf.put_job(ENDED, B, ended=True)
    folder = f"{shelf.store.location}/{names.outputs}"
    shelf.put_job(RUNNING, A, ended=False, output_dir=folder)

    assert shelf.prune("outputs", older_than=None) == {"outputs": 0}


@pytest.mark.parametrize("kind", ["contexts", "data", "logs", "jobs", "outputs"])
def test_nothing_else_goes_than_what_is_named(shelf: Shelf, kind: str) -> None:
    names = shelf.put_job(ENDED, B, ended=True)
    prefixes = {"contexts": "contexts/", "data": "data", "logs": "logs/", "outputs": "outputs/"}
    gone = {name for name in shelf.names() if name.startswith(prefixes.get(kind, names.prefix))}

    left = shelf.names() - gone
    shelf.prune(kind)

    assert shelf.names() == left


def test_a_context_that_a_submit_renews_meanwhile_stays(shelf: Shelf, tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "main.py").write_text("1")
    snapshot = take_snapshot(tmp_path / "project")
    for older_than in (MONTH, None):
        ensure_context(shelf.store, snapshot)
        shelf.age()
        options = PruneOptions(kinds=["contexts"], older_than=older_than)
        pruning = prepare_prune(shelf.settings, options)
        assert [removal.items for removal in pruning.plan] == [1]

        ensure_context(shelf.store, snapshot)

        assert [removal.items for removal in pruning.apply()] == [0]
        assert shelf.names() == {context_object(snapshot.digest)}


def test_parts_go_with_the_last_context_that_has_them(shelf: Shelf) -> None:
    shelf.put_job(RUNNING, A, ended=False)
    own, shared, unused = (context_part(f"{8 * '0'}/{digest}") for digest in (A, B, C))
    for digest, parts in ((A, [shared]), (B, [shared, own])):
        text = {"digest": digest, "parts": parts, "written_at": 0.0}
        shelf.store.write(context_parts(digest), json.dumps(text).encode())
    for name in (own, shared, unused):
        shelf.store.write(name, b"zip")
    shelf.age()

    assert shelf.prune("contexts") == {"contexts": 1}

    kept = {context_object(A), context_parts(A), shared}
    assert {info.name for info in shelf.store.list("contexts/")} == kept


def test_data_that_is_uploaded_while_it_is_removed_is_complete(
    shelf: Shelf, tmp_path: Path
) -> None:
    folder, sizes, deletions = tmp_path / "data", Sizes(large=1), list[str]()
    folder.mkdir()
    for name in ("a", "b"):
        (folder / name).write_text(name)
    digest = ensure_data(shelf.store, folder, sizes=sizes)
    shelf.age()

    class Store(FolderStore):
        def delete(self, name: str, *, if_generation: int | None = None) -> bool:
            deletions.append(name)
            if len(deletions) == 3:  # The marker and one object are gone.
                ensure_data(shelf.store, folder, sizes=sizes)
            return super().delete(name, if_generation=if_generation)

    store = Store(tmp_path / "store")
    [unit] = units_of(store, "data")
    assert remove(store, unit, time.time() - 86_400)[0] == 2
    assert deletions[0] == data_marker(digest)

    marker = parse_marker(store.read(data_marker(digest)), digest=digest)
    for listed in marker.objects:
        found = store.stat(data_prefix(digest) + listed.name)
        assert found is not None
        assert found.size == listed.size


def test_caches_that_were_used_within_a_day_stay(shelf: Shelf) -> None:
    old, young = (shelf.folder / "bundles" / digest for digest in (A, B))
    for folder in (old, young):
        folder.mkdir(parents=True)
        (folder / "remote_runner.py").write_text("1")
    os.utime(old, (time.time() - 90_000,) * 2)

    assert shelf.prune("caches", older_than=None) == {"caches": 1}
    assert (old.exists(), young.exists()) == (False, True)


def test_the_needs_of_a_job_that_cannot_be_read_are_not_guessed(shelf: Shelf) -> None:
    shelf.put_job(RUNNING, A, ended=False)
    shelf.store.delete(JobObjects(RUNNING).payload)

    with pytest.raises(JobError, match=RUNNING):
        shelf.prune("data")
    kinds = ("jobs", "logs", "outputs")
    assert shelf.prune(*kinds) == dict.fromkeys(kinds, 0)


def test_a_batch_whose_inputs_run_again_meanwhile_stays(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf.put_job(ENDED, B, ended=True)
    names, member = JobObjects("grp-0123abcd"), JobObjects("cpu-f-20260101-000000-0123abcd-0")
    manifest = GroupManifest(
        group_id=names.job_id,
        tags={},
        created_at="2026-01-01T00:00:00+00:00",
        total_expected=1,
        accelerator="cpu",
        func_name="f",
        job=a_record(job_id=names.job_id, backend="local"),
        members="cpu-f-20260101-000000-0123abcd",
    )
    for name, data in {
        names.handle: encode(manifest),
        names.payload: a_payload(),
        member.outcome: b"{}",
    }.items():
        shelf.store.write(name, data)
    shelf.age()
    options = PruneOptions(kinds=["jobs"], older_than=MONTH)
    pruning = prepare_prune(shelf.settings, options)
    assert pruning.plan[0].items == 2

    def retry(*_: object, **__: object) -> None:
        shelf.store.delete(member.outcome)

    monkeypatch.setattr(prune, "clean_up", retry)

    assert pruning.apply()[0].items == 1
    assert {names.handle, names.payload} <= shelf.names()
    assert pruning.problems == []


def test_all_ages_wait_for_a_submit_that_is_under_way(shelf: Shelf) -> None:
    shelf.store.write(context_object(A), b"zip")
    shelf.store.write(JobObjects(RUNNING).payload, a_payload())

    with pytest.raises(JobError, match="is being submitted"):
        shelf.prune("contexts", older_than=None)
    shelf.age(JobObjects(RUNNING).prefix, days=2)
    assert shelf.prune("contexts", older_than=None) == {"contexts": 1}


@pytest.mark.parametrize(
    ("settings", "options", "message"),
    [
        ({}, {"kinds": ["everything"]}, "'everything' is not a kind"),
        ({}, {"kinds": []}, "no kind is named"),
        ({}, {"kinds": ["data"], "older_than": timedelta(days=7)}, "less than 14 days"),
        ({}, {"kinds": ["logs"], "older_than": timedelta(days=-1)}, "negative"),
        ({"backend": "gke", "project": "p"}, {"kinds": ["caches"]}, "caches are on this machine"),
        ({"project": "p"}, {"kinds": ["logs"]}, "this machine and a cluster"),
    ],
)
def test_what_is_unclear_is_refused(
    tmp_path: Path, settings: dict[str, str], options: dict[str, object], message: str
) -> None:
    resolved = resolve(settings, environ={"KINETIC_HOME": str(tmp_path), "HOME": str(tmp_path)})

    with pytest.raises(InvalidRequestError, match=message):
        prepare_prune(resolved, PruneOptions(**{"older_than": MONTH, **options}))  # type: ignore[arg-type]
