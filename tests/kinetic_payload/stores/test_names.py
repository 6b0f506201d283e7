"""Paths of names in a folder store: no two names have one path, and no path leads out of the store."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinetic_payload.stores.folder.store import FolderStore
from kinetic_payload.stores.names import check_name, name_to_path, part_to_path, path_to_part

PARTS = (
    st.lists(
        st.one_of(
            st.sampled_from(
                [
                    "%", "%2", "%25", "%2E", "%2e", "%00", "~", "\0", ".", "..", "25", "E", "0",
                    ".kinetic-store", ".KINETIC-store", "a", "é", "😀",
                ]
            ),
            st.text(st.characters(exclude_characters="/", exclude_categories=["Cs"]), max_size=4),
        ),
        min_size=1,
        max_size=6,
    )
    .map("".join)
    .filter(lambda part: part not in ("", ".", ".."))
)  # fmt: skip


@given(PARTS)
def test_the_path_of_a_part_is_read_back_as_that_part(part: str) -> None:
    path = part_to_path(part)

    # No two parts can then be spelled alike.
    assert path_to_part(path) == part
    assert path not in ("", ".", "..")
    assert not path.lower().startswith(".kinetic-store")
    assert not {"/", "\0"} & set(path)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("jobs/outcome.json", "jobs/outcome.json"),
        ("contexts/" + "0" * 64 + ".zip", "contexts/" + "0" * 64 + ".zip"),
        ("a%b", "a%b"),
        ("100%25", "100%2525"),
        (".kinetic-store/x", "%2Ekinetic-store/x"),
        ("a" * 250, "a" * 250),
        ("...", "..."),
    ],
)
def test_names_keep_the_paths_that_they_have_in_existing_stores(name: str, path: str) -> None:
    assert name_to_path(check_name(name)) == path


@pytest.mark.parametrize(
    "path",
    [
        "%2E", "%2E.", "%2Ea", ".kinetic-STORE/x", "%2E/inner", "/".join(["d" * 150] * 7),
    ],
)  # fmt: skip
def test_files_with_paths_of_no_object_are_not_listed(tmp_path: Path, path: str) -> None:
    store = FolderStore(tmp_path)
    store.write("object", b"")
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).touch()

    assert [info.name for info in store.list()] == ["object"]
    assert list(store.folders()) == []


@given(paths=st.lists(PARTS.filter(lambda part: "\0" not in part), max_size=20))
def test_everything_that_is_listed_can_be_read(
    paths: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("store")
    store = FolderStore(root)
    for path in paths:
        with suppress(OSError):  # Too long for a file system.
            (root / path).write_bytes(path.encode())

    for info in store.list():
        assert store.read(info.name) == name_to_path(info.name).encode()
