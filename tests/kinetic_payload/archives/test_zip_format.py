"""The ends of archives, whose numbers may look like the marker that begins them."""

from __future__ import annotations

import io
import struct
import zipfile
from pathlib import Path

import pytest

from kinetic_payload.archives.zip_format import (
    Member,
    central_header,
    data_offset,
    end_records,
    read_directory,
)
from kinetic_payload.errors import IntegrityError

MARKER = int.from_bytes(b"PK\5\6", "little")
LOCATOR = b"PK\6\7"
MOST = 1_000_000


def an_archive(path: Path, count: int, *, start: int = 0, length: int = 0) -> list[str]:
    """Write an archive of *count* folders whose directory has this start and length; return them."""
    names = [f"{number:06d}" for number in range(count)]
    left = length - count * (46 + 7) if length else 0
    assert left >= 0
    for number in range(count):
        more = min(left, 60_000 if count < 10_000 else 3_000)  # As much as unzip takes.
        names[number] += "x" * more
        left -= more
    assert not left
    directory = b"".join(central_header(Member(name, "dir", 0o755)) for name in names)
    with path.open("wb") as stream:
        stream.seek(start)  # Nothing but zeros: only the directory is read.
        stream.write(directory + end_records(count, start, len(directory)))
    return names


def read(path: Path) -> list[str]:
    with path.open("rb") as stream:
        return [member.path for member in read_directory(stream, max_entries=MOST)]


@pytest.mark.parametrize(
    ("count", "start", "length"),
    [
        (1, 0, 0),
        (5, MARKER, 0),  # The marker is where the directory starts.
        (0x4B50, 0, 0x0010_0605),  # The marker runs from the count into the length.
        (65_535, 0, 0),  # zip64.
        (1, 0xFFFF_FFFF, 0),
        (1, 0x1_0000_0000 | MARKER, 0),
    ],
)
def test_an_archive_whose_numbers_look_like_records_is_read(
    tmp_path: Path, count: int, start: int, length: int
) -> None:
    path = tmp_path / "a.zip"
    names = an_archive(path, count, start=start, length=length)

    assert read(path) == names
    with zipfile.ZipFile(path) as archive:
        assert archive.namelist() == [f"{name}/" for name in names]


def test_a_directory_that_ends_like_a_locator_is_read(tmp_path: Path) -> None:
    # The digest of the last entry looks like a locator, 20 bytes before the end.
    digest = bytes(12) + LOCATOR + bytes(16)
    directory = central_header(Member("a", "file", 0o644, digest=digest.hex()))
    stream = io.BytesIO(directory + end_records(1, 0, len(directory)))

    [member] = read_directory(stream, max_entries=MOST)

    assert member.digest == digest.hex()


def test_an_archive_that_is_cut_off_has_no_end(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    an_archive(path, 0x4B50, length=0x0010_0605)
    whole = path.read_bytes()

    for rest in (whole[:-1], whole[:-22], bytes(12) + b"PK\5\6\0"):
        path.write_bytes(rest)
        with pytest.raises(IntegrityError, match="has no end"):
            read(path)


def test_records_that_reach_beyond_the_archive_are_damage() -> None:
    entry = bytearray(central_header(Member("a", "dir", 0o755)))
    entry[30] = 9  # The length of its extra field.
    wide = b"PK\6\6" + struct.pack("<4sLQL", LOCATOR, 0, 0, 1)  # Cut off: a record and its locator.

    for damaged in (
        bytes(entry) + end_records(1, 0, len(entry)),
        wide + end_records(0xFFFF, 0, 0)[-22:],
    ):
        with pytest.raises(IntegrityError, match="damaged"):
            list(read_directory(io.BytesIO(damaged), max_entries=MOST))
    with pytest.raises(IntegrityError, match="damaged"):
        data_offset(io.BytesIO(b"PK\3\4"), Member("a", "file", 0o644))
