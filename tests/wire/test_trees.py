"""Any folder arrives unchanged, as `Data` and as context, over any store."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kinetic_payload.archives.extract import extract_archive
from kinetic_payload.archives.safe_paths import unsafe_path
from kinetic_payload.data.download import download_data
from kinetic_payload.data.marker import Sizes
from kinetic_payload.data.references import DataRef
from kinetic_payload.data.upload import ensure_data
from kinetic_payload.errors import DataError
from kinetic_payload.layout import data_files_prefix
from kinetic_payload.project.context import ensure_context, fetch_context
from kinetic_payload.project.snapshot import take_snapshot, tree_of
from kinetic_payload.stores.folder.store import FolderStore
from kinetic_payload.stores.gcs import GcsStore, Service
from kinetic_payload.stores.names import problem_of
from kinetic_payload.stores.store import Store
from kinetic_servers.gcs import GcsServer

SIZES = Sizes(large=64, pack=1500, small=10)
"""So that small trees have packs and large files, and files that are read as a whole."""

letters = st.one_of(
    st.characters(exclude_characters="/\0", exclude_categories=["Cs"]),
    st.sampled_from(
        [*" \n\r\t\\.*?[]%~'\"#&+üé語", "\udc80", "\udcff", "𝔘", "\u0301", "\u200b", "-"]
    ),
)
names = st.one_of(
    st.text(letters, min_size=1, max_size=6),
    st.sampled_from(
        ["CON", "a:b", "...", "..a", "-rf", " ", "~", "%00", ".kinetic-store", "x" * 200, "packs"]
    ),
).filter(
    lambda name: (
        unsafe_path(name) is None
        and "\\" not in name
        and len(name.encode("utf-8", "surrogateescape")) <= 200
    )
)
sizes = st.sampled_from([0, 1, 9, 10, 11, 63, 64, 65, 500, 1499, 1500, 1501, 4000])
modes = st.sampled_from([0o644, 0o755, 0o600, 0o444, 0o500, 0o777])
files = st.tuples(st.just("file"), sizes, modes, st.integers(0, 255))
links = st.tuples(
    st.just("link"),
    st.sampled_from(
        [
            ".",
            "..",
            "a",
            "b/c",
            "../a",
            "../../a",
            "./b/../a",
            "nowhere",
            "../OUT/folder",
            "../OUT/file",
        ]
    ),
)
leaves = st.one_of(files, files, links)
trees = st.recursive(
    st.dictionaries(st.one_of(st.sampled_from("abc"), names), leaves, max_size=4),
    lambda inner: st.dictionaries(
        st.one_of(st.sampled_from("abc"), names), st.one_of(leaves, inner), max_size=4
    ),
    max_leaves=14,
)


def plant(folder: Path, tree: dict) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for entry, what in tree.items():
        path = folder / entry
        if os.path.lexists(path):
            continue  # To this file system, these names are the same.
        if isinstance(what, dict):
            plant(path, what)
        elif what[0] == "file":
            _, size, mode, filling = what
            path.write_bytes(bytes((filling * i) % 251 for i in range(size)))
            path.chmod(mode)
        else:
            path.symlink_to(what[1])


def described(top: Path, left_out: set[str]) -> dict[str, object]:
    """Return the contents and modes of a tree, as seen through links, and the targets of links."""
    found: dict[str, object] = {}
    real_top = os.path.realpath(top)

    def look(real: str, path: str) -> None:
        for entry in os.scandir(real):
            inner = f"{path}/{entry.name}" if path else entry.name
            if inner in left_out:
                continue
            goal = os.path.realpath(entry.path)
            if os.path.isfile(goal):
                mode = stat.S_IMODE(os.stat(goal).st_mode)
                found[inner] = ("file", mode, Path(goal).read_bytes())
            elif not entry.is_symlink():
                found[inner] = ("folder", stat.S_IMODE(os.stat(goal).st_mode))
                look(entry.path, inner)
            elif goal == real_top or goal.startswith(f"{real_top}/"):
                found[inner] = ("link", os.path.relpath(goal, real_top))
            else:
                found[inner] = ("folder", stat.S_IMODE(os.stat(goal).st_mode))
                look(goal, inner)

    look(real_top, "")
    return found


@pytest.fixture(scope="module")
def server() -> Iterator[GcsServer]:
    """Return a strict server for all trees; the names of their objects contain their digests."""
    with GcsServer() as running:
        running.create_bucket("bucket")
        yield running


@pytest.fixture(scope="module", params=["folder", "bucket"])
def store(
    request: pytest.FixtureRequest, server: GcsServer, tmp_path_factory: pytest.TempPathFactory
) -> Store:
    """Return a store of either kind."""
    if request.param == "folder":
        return FolderStore(tmp_path_factory.mktemp("store"))
    return GcsStore("bucket/a prefix", service=Service(server.endpoint, anonymous=True))


def planted(place: Path, tree: dict) -> Path:
    source = place / "in" / "tree"
    plant(source, tree)
    outside = place / "in" / "OUT"
    plant(outside, {"folder": {"x": ("file", 100, 0o644, 7)}, "file": ("file", 70, 0o755, 9)})
    return source


def with_place(factory: pytest.TempPathFactory, work: Callable[[Path], None]) -> None:
    place = factory.mktemp("tree")
    try:
        work(place)
    finally:
        shutil.rmtree(place, ignore_errors=True)


EXAMPLES = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


@EXAMPLES
@given(tree=trees)
def test_any_folder_arrives_as_data(
    store: Store, tmp_path_factory: pytest.TempPathFactory, tree: dict
) -> None:
    def work(place: Path) -> None:
        source = planted(place, tree)
        expected = tree_of(source)
        digest = ensure_data(store, source, sizes=SIZES)
        ref = DataRef(key="d0", kind="local", source="x", is_dir=True, name="tree", digest=digest)
        arrived = download_data(store, ref, place / "out" / "tree")
        left_out = {item.path for item in expected.left_out}
        assert digest == expected.digest == tree_of(arrived).digest
        assert described(arrived, set()) == described(source, left_out)
        assert [path.name for path in (place / "out").iterdir()] == ["tree"]

    with_place(tmp_path_factory, work)


@EXAMPLES
@given(tree=trees)
def test_any_project_arrives_as_context(
    store: Store, tmp_path_factory: pytest.TempPathFactory, tree: dict
) -> None:
    def work(place: Path) -> None:
        source = planted(place, tree)
        snapshot = take_snapshot(source, no_defaults=True)
        ensure_context(store, snapshot)
        fetch_context(store, snapshot.digest, place / "context.zip")
        arrived = place / "out"
        extract_archive(place / "context.zip", arrived, expected_digest=snapshot.digest)
        left_out = {item.path for item in snapshot.left_out}
        assert described(arrived, set()) == described(source, left_out)

    with_place(tmp_path_factory, work)


@EXAMPLES
@given(tree=trees)
def test_any_folder_can_be_mounted_or_is_refused_by_name(
    server: GcsServer, tmp_path_factory: pytest.TempPathFactory, tree: dict
) -> None:
    store = GcsStore("bucket", service=Service(server.endpoint, anonymous=True))

    def work(place: Path) -> None:
        source = planted(place, tree)
        entries = tree_of(source).entries
        prefix = data_files_prefix("0" * 64)
        odd = [entry.path for entry in entries if problem_of(f"{prefix}{entry.path}~")]
        if odd:
            with pytest.raises(DataError) as caught:
                ensure_data(store, source, mounted=True, sizes=SIZES)
            assert repr(odd[0]) in caught.value.message
            return
        prefix = data_files_prefix(ensure_data(store, source, mounted=True, sizes=SIZES))
        names = server.names("bucket", prefix)
        contents = {name.removeprefix(prefix): server.read("bucket", name) for name in names}
        for entry in entries:
            if entry.kind == "file":
                assert contents.pop(entry.path) == (source / entry.path).read_bytes()
            elif entry.kind == "link":
                assert contents.pop(entry.path) == b""
            else:
                contents.pop(f"{entry.path}/", None)
        assert contents in ({}, {"": b""} if not entries else {})

    with_place(tmp_path_factory, work)
