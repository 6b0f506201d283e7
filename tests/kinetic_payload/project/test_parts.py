"""Large projects, uploaded in parts: a change uploads its own size, and a part that is not right is refused by name."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from kinetic_payload.archives.extract import extract_archive
from kinetic_payload.errors import IntegrityError, ObjectNotFoundError
from kinetic_payload.layout import context_object, context_parts
from kinetic_payload.project.context import REFRESH_AGE, ensure_context, fetch_context
from kinetic_payload.project.snapshot import Snapshot, take_snapshot
from kinetic_payload.stores.folder.store import FolderStore
from kinetic_payload.testing import MemoryStore

MB = 1_000_000


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with 600 files of 20 kB, in folders, and one of 5 MB."""
    root = tmp_path / "project"
    for number in range(600):
        path = root / f"part{number % 7}" / f"file{number}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(random.Random(number).randbytes(20_000))
    (root / "run.log").write_bytes(random.Random(-1).randbytes(5 * MB))
    (root / "link").symlink_to("part1/file1.bin")
    return root


def fetched(store: MemoryStore | FolderStore, snapshot: Snapshot, place: Path) -> Snapshot:
    """Download and extract a snapshot; return the one of the result."""
    place.mkdir()
    fetch_context(store, snapshot.digest, place / "context.zip")
    extract_archive(place / "context.zip", place / "out", expected_digest=snapshot.digest)
    assert [path.name for path in sorted(place.iterdir())] == ["context.zip", "out"]
    return take_snapshot(place / "out", no_defaults=True)


def change_a_line(root: Path) -> None:
    with (root / "part3" / "file17.bin").open("r+b") as stream:
        stream.write(b"changed")


def add_a_file(root: Path) -> None:
    (root / "part3" / "new.bin").write_bytes(bytes(20_000))


def test_a_large_project_takes_few_objects_and_arrives_unchanged(project, tmp_path: Path) -> None:
    store, snapshot = MemoryStore(), take_snapshot(project)

    assert ensure_context(store, snapshot) == snapshot.size
    assert ensure_context(store, snapshot) == 0

    assert len(store.names()) <= 25
    assert fetched(store, snapshot, tmp_path / "there").digest == snapshot.digest


@pytest.mark.parametrize("change", [change_a_line, add_a_file])
def test_a_change_uploads_at_most_two_megabytes(
    project, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    store = MemoryStore()
    ensure_context(store, take_snapshot(project))
    before = {*store.names()}

    change(project)
    snapshot = take_snapshot(project)
    ensure_context(store, snapshot)

    assert sum(len(store.read(name)) for name in {*store.names()} - before) <= 2 * MB
    assert fetched(store, snapshot, tmp_path / "there").digest == snapshot.digest


def test_a_log_that_grows_is_uploaded_alone(project) -> None:
    store = MemoryStore()
    ensure_context(store, take_snapshot(project))

    with (project / "run.log").open("ab") as stream:
        stream.write(b"one more line\n")

    assert ensure_context(store, take_snapshot(project)) == 5 * MB + 14


@pytest.mark.parametrize("which", ["first", "last", "list"])
def test_what_is_missing_is_uploaded_again(project, tmp_path: Path, which: str) -> None:
    store, snapshot = MemoryStore(), take_snapshot(project)
    ensure_context(store, snapshot)
    parts = [name for name in store.names() if name.startswith("contexts/parts/")]
    names = {"first": parts[0], "last": parts[-1], "list": context_parts(snapshot.digest)}
    store.delete(names[which])
    with pytest.raises(ObjectNotFoundError):
        fetch_context(store, snapshot.digest, tmp_path / "context.zip")

    assert ensure_context(store, snapshot) < snapshot.size
    assert fetched(store, snapshot, tmp_path / "there").digest == snapshot.digest


def test_the_age_of_old_parts_is_reset_when_they_are_used_again(project, tmp_path: Path) -> None:
    store, snapshot = FolderStore(tmp_path / "store"), take_snapshot(project)
    ensure_context(store, snapshot)
    names = [info.name for info in store.list("contexts/")]
    old = store.now() - REFRESH_AGE - 60
    for name in names[:3]:
        os.utime(tmp_path / "store" / name, (old, old))

    assert ensure_context(store, snapshot) == 0
    assert all(info.updated > old + 60 for info in store.list("contexts/"))
    assert fetched(store, snapshot, tmp_path / "there").digest == snapshot.digest


def test_a_part_that_was_replaced_is_refused_by_its_name(project, tmp_path: Path) -> None:
    store, snapshot = MemoryStore(), take_snapshot(project)
    ensure_context(store, snapshot)
    first, second, *_ = (name for name in store.names() if name.startswith("contexts/parts/"))
    store.write(first, store.read(second))

    with pytest.raises(IntegrityError, match=first) as caught:
        fetch_context(store, snapshot.digest, tmp_path / "context.zip")

    assert f"delete {first}" in str(caught.value.hint)


@pytest.mark.parametrize("forged", [b"{}", b"[", b'{"parts": ["../x"]}', "other", "twice"])
def test_a_forged_list_of_parts_is_refused(project, tmp_path: Path, forged: bytes | str) -> None:
    store, snapshot = MemoryStore(), take_snapshot(project)
    ensure_context(store, snapshot)
    name = context_parts(snapshot.digest)
    data = store.read(name)
    if forged == "twice":
        forged = data.replace(b'"parts": [', b'"parts": ["contexts/parts/x.zip", ')
    elif forged == "other":  # Of another tree: the digest of the whole decides.
        (project / "part1" / "file1.bin").unlink()
        other = take_snapshot(project)
        ensure_context(store, other)
        own, theirs = snapshot.digest.encode(), other.digest.encode()
        forged = store.read(context_parts(other.digest)).replace(theirs, own)
    store.write(name, forged)

    with pytest.raises(IntegrityError):
        fetched(store, snapshot, tmp_path / "there")
    assert not (tmp_path / "there" / "out").exists()


def test_an_archive_of_an_earlier_version_is_still_read(project, tmp_path: Path) -> None:
    store, snapshot = MemoryStore(), take_snapshot(project)
    with store.writer(context_object(snapshot.digest)) as stream:
        snapshot.write(stream)

    assert fetched(store, snapshot, tmp_path / "there").digest == snapshot.digest
