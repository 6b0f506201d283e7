from __future__ import annotations

import io
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinetic_images.builders.layers.wheel_contents import content_of

KINDS = [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]


def an_archive(entries: dict[str, bytes], kind: int, before: bytes = b"") -> bytes:
    buffer = io.BytesIO(before)
    buffer.seek(len(before))
    with zipfile.ZipFile(buffer, "a", kind) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def read(data: bytes, name: str, **changes: int) -> bytes:
    stream = io.BytesIO(data)
    archive = zipfile.ZipFile(stream)
    info = archive.getinfo(name)
    for field, value in changes.items():
        setattr(info, field, value)
    return b"".join(content_of(archive, stream, info))


@given(
    st.dictionaries(st.sampled_from(["a", "b/ü", "c"]), st.binary(max_size=5000)),
    st.sampled_from(KINDS),
)
def test_any_entries_are_read_as_zipfile_reads_them(entries: dict[str, bytes], kind: int) -> None:
    data = an_archive(entries, kind, before=b"#!/bin/sh\n")

    assert {name: read(data, name) for name in entries} == entries


def test_an_entry_that_inflates_to_much_comes_in_pieces() -> None:
    stream = io.BytesIO(an_archive({"a": bytes(8 << 20)}, zipfile.ZIP_DEFLATED))
    archive = zipfile.ZipFile(stream)

    sizes = [len(piece) for piece in content_of(archive, stream, archive.getinfo("a"))]

    assert sum(sizes) == 8 << 20
    assert max(sizes) <= 1 << 20


@pytest.mark.parametrize("more", [0, 1, 2, 7, 15, 100, 5000])
@pytest.mark.parametrize("line", [b"some text of a module\n", b"\0"])
def test_an_entry_a_little_longer_than_a_piece_is_read_to_its_end(line: bytes, more: int) -> None:
    content = (line * ((2 << 20) // len(line) + 5001))[: (2 << 20) + more]

    assert read(an_archive({"a": content}, zipfile.ZIP_DEFLATED), "a") == content


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"file_size": 999}, "longer"),
        ({"file_size": 1001}, "ends early"),
        ({"compress_size": 5}, "ends early"),
        ({"CRC": 0}, "checksum"),
        ({"header_offset": 1}, "header"),
        ({"header_offset": 10**9}, "header"),
    ],
)
def test_a_directory_that_contradicts_the_content_is_noticed(
    changes: dict[str, int], problem: str
) -> None:
    data = an_archive({"a": bytes(range(250)) * 4}, zipfile.ZIP_DEFLATED)

    with pytest.raises(zipfile.BadZipFile, match=problem):
        read(data, "a", **changes)
