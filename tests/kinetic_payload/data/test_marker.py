import json
from dataclasses import replace

import pytest

from kinetic_payload.data.marker import (
    Listed,
    Marker,
    Sizes,
    encode_marker,
    mounted_parts,
    packed_parts,
    parse_marker,
)
from kinetic_payload.digests import TreeEntry
from kinetic_payload.errors import FutureRecordError, RecordError

DIGEST = "d" * 64
FILE = "f" * 64


def a_file(path: str, size: int) -> TreeEntry:
    return TreeEntry(path, "file", 0o644, size, FILE)


def a_marker() -> Marker:
    listed = (Listed("packs/00000.zip", 100), Listed("large/00000", 5, "odd \udc80\n", 0o755, FILE))
    return Marker(digest=DIGEST, objects=listed, mounted=False, written_at=12.5)


def test_large_files_go_alone_and_the_rest_in_packs_of_a_size() -> None:
    entries = [a_file(f"{n:02d}", 400_000) for n in range(10)]
    entries.insert(3, a_file("025", 1_000_000))
    entries.insert(0, TreeEntry("0", "dir"))
    parts = packed_parts(DIGEST, entries, Sizes(large=1_000_000, pack=1_000_000))
    large, *packs = parts
    assert large.name == f"data/{DIGEST}/large/00000"
    assert [entry.path for entry in large.entries] == ["025"]
    assert [part.name.rpartition("/")[2] for part in packs] == [f"{n:05d}.zip" for n in range(4)]
    assert [len(part.entries) for part in packs] == [4, 3, 3, 1]
    everything = [entry for part in parts for entry in part.entries]
    assert sorted(everything, key=lambda e: e.path) == entries
    assert packed_parts(DIGEST, []) == mounted_parts(DIGEST, []) == ()
    empty = [a_file(f"{n:04d}", 0) for n in range(1000)]
    assert len(packed_parts(DIGEST, empty, Sizes(pack=100_000))) > 1


def test_a_marker_comes_back_as_it_was() -> None:
    marker = a_marker()
    assert parse_marker(encode_marker(marker), digest=DIGEST) == marker
    mounted = replace(marker, mounted=True, objects=(Listed("files/run", 3),), executables=("run",))
    assert parse_marker(encode_marker(mounted), digest=DIGEST, mounted=True) == mounted


def large(**changes: object) -> list[dict[str, object]]:
    file = {"name": "large/00000", "size": 1, "path": "a", "mode": 0, "digest": FILE}
    return [{key: value for key, value in (file | changes).items() if value is not None}]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("digest", "e" * 64),
        ("form", "files"),
        ("version", "1"),
        ("version", True),
        ("written_at", None),
        ("objects", {}),
        ("objects", [{"name": "../x", "size": 1}]),
        ("objects", [{"name": "packs/../../../jobs/payload.pkl", "size": 1}]),
        ("objects", [{"name": "packs/00000.zip", "size": -1}]),
        ("objects", [{"name": "packs/00000.zip", "size": 1.5}]),
        ("objects", large(path=None, mode=None, digest=None)),
        ("objects", large(name="large/0")),
        ("objects", large(path="\ud800")),
        ("objects", large(mode=-1)),
        ("objects", large(digest="x")),
    ],
)
def test_a_marker_that_is_not_of_this_data_is_refused(key: str, value: object) -> None:
    written = json.loads(encode_marker(a_marker())) | {key: value}
    with pytest.raises(RecordError):
        parse_marker(json.dumps(written).encode(), digest=DIGEST)


def test_a_marker_of_a_newer_version_is_a_future_record() -> None:
    written = json.loads(encode_marker(a_marker())) | {"version": 99, "objects": "elsewhere"}
    with pytest.raises(FutureRecordError, match="99"):
        parse_marker(json.dumps(written).encode(), digest=DIGEST)
