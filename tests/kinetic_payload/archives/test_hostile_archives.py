"""Thousands of archives that an enemy could write: nothing is written outside, no error is foreign."""

from __future__ import annotations

import errno
import io
import os
import random
import shutil
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kinetic_payload.archives.extract import Contents, Extraction, extract_archive
from kinetic_payload.archives.zip_format import Member, central_header, end_records, local_header
from kinetic_payload.digests import FileHasher, TreeEntry
from kinetic_payload.errors import DataError, IntegrityError

ROUNDS = 5
CASES = 1000
"""Of each round."""
MAX_SIZE = 200_000

NAMES = (
    "a", "b", "a/b", "a/b/c", "d/", "a/", "A", "link", "link/x", "link/../x", "up", "up/x",
    "../x", "..", ".", "./a", "a/../../x", "a/./b", "a//b", "/etc/passwd", "/", "", "//", "a/..",
    "..\\x", "a\\..\\..\\x", "C:/x", "c:\\x", "\\\\host\\x", "nul\0x", "\0", "ü", "\udc80", "x" * 300,
    "/".join("y" * 50 for _ in range(60)), "a\n", " ", "CON", "~", ".kinetic-store",
)  # fmt: skip
TARGETS = (
    "a", "b", "..", "../..", "../../etc", "/etc", "/", "", ".", "./", "a/../..", "link", "up",
    "link/..", "up/../..", "//", "\0", "x" * 20_000, "../dest", "a/b/../../..", "\udc80", "d/../..",
)  # fmt: skip
SIZES = (0, 1, 100, 0x7FFFFFFF, 0xFFFFFFFE, 0xFFFFFFFF, MAX_SIZE + 1)


def a_member(rng: random.Random) -> tuple[Member, bytes]:
    """Return an entry that is more often wrong than right, and its bytes in the archive."""
    kind = rng.choice(("file", "file", "file", "dir", "link", "link"))
    path = rng.choice(NAMES)
    content = b""
    if kind == "link":
        content = rng.choice(TARGETS).encode("utf-8", "surrogateescape")
    elif kind == "file":
        content = rng.choice((b"", b"x", b"hello" * 20, bytes(3000), rng.randbytes(500)))
    member = Member(path, kind, rng.choice((0o644, 0o755, 0o777, 0o4755, 0, 0o7777)) & 0o7777)  # type: ignore[arg-type]
    if rng.random() < 0.8 and kind == "file":
        hasher = FileHasher(path)
        hasher.update(content)
        member.digest = hasher.hexdigest()
    data = content
    if rng.random() < 0.4:
        packer = zlib.compressobj(6, zlib.DEFLATED, -15)
        data = packer.compress(content) + packer.flush()
        member.method = 8
    member.size, member.compressed, member.crc = len(content), len(data), zlib.crc32(content)
    return member, data


def lie(rng: random.Random, member: Member) -> None:
    """Make the directory say something else than the archive holds."""
    what = rng.choice(
        ("size", "compressed", "crc", "offset", "method", "digest", "mode", "streamed")
    )
    if what in ("size", "compressed", "offset"):
        setattr(member, what, rng.choice((*SIZES, getattr(member, what) + rng.choice((-1, 1)))))
        setattr(member, what, max(0, getattr(member, what)))
    elif what == "crc":
        member.crc ^= 1
    elif what == "method":
        member.method = rng.choice((0, 8, 9, 12, 99))
    elif what == "digest":
        member.digest = rng.randbytes(32).hex()
    elif what == "mode":
        member.mode = rng.choice((0, 0o777))
    else:
        member.streamed = True


def crafted(rng: random.Random) -> bytes:
    """Return an archive of odd entries: paths, links, duplicates, overlaps, lies."""
    stream = io.BytesIO()
    directory = []
    for _ in range(rng.randrange(6)):
        member, data = a_member(rng)
        member.offset = stream.tell()
        stream.write(local_header(member) + data)
        directory.append(member)
        if rng.random() < 0.1:
            directory.append(member)
    for member in directory:
        if rng.random() < 0.25:
            lie(rng, member)
    start = stream.tell()
    for member in directory:
        stream.write(central_header(member))
    length = stream.tell() - start
    count = len(directory)
    if rng.random() < 0.1:
        count, start, length = (max(0, n + rng.choice((-1, 0, 1))) for n in (count, start, length))
    if rng.random() < 0.05:
        count = rng.choice((0xFFFF, 70_000, 1 << 40))
    stream.write(end_records(count, start, length))
    return stream.getvalue()


def valid_archive() -> bytes:
    """Return an archive that nothing is wrong with."""
    content = b"content " * 100
    digest = FileHasher("a/x")
    digest.update(content)
    packer = zlib.compressobj(6, zlib.DEFLATED, -15)
    deflated = packer.compress(content) + packer.flush()
    file = {"size": len(content), "crc": zlib.crc32(content), "digest": digest.hexdigest()}
    stream = io.BytesIO()
    ours = (
        (Member("a", "dir", 0o755), b""),
        (Member("a/x", "file", 0o644, method=8, **file), deflated),  # type: ignore[arg-type]
        (Member("up", "link", 0o777, size=3, crc=zlib.crc32(b"a/x")), b"a/x"),
    )
    for member, data in ours:
        member.compressed, member.offset = len(data), stream.tell()
        stream.write(local_header(member) + data)
    start = stream.tell()
    directory = b"".join(central_header(member) for member, _ in ours)
    stream.write(directory + end_records(len(ours), start, len(directory)))
    return stream.getvalue()


VALID = valid_archive()


def mutated(rng: random.Random) -> bytes:
    """Return a good archive with something changed."""
    data = bytearray(VALID)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        at = rng.randrange(len(data) + 1)
        what = rng.randrange(7)
        if what == 0 and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        elif what == 1:
            del data[at:]
            data = data or bytearray(b"\0")
        elif what == 2:
            del data[at : at + rng.randrange(1, 40)]
            data = data or bytearray(b"\0")
        elif what == 3:
            data[at:at] = rng.randbytes(rng.randrange(1, 40))
        elif what == 4:
            value = rng.choice((*SIZES, rng.getrandbits(32)))
            data[at : at + 4] = struct.pack("<L", value)
        elif what == 5:
            data += VALID[rng.randrange(len(VALID)) :]
        else:
            # Change one of the headers.
            marks = [n for n in range(len(data) - 4) if data[n : n + 2] == b"PK"] or [0]
            at = rng.choice(marks) + rng.randrange(50)
            data[at : at + 2] = struct.pack("<H", rng.choice((0, 1, 0xFFFF, rng.getrandbits(16))))
    return bytes(data)


def contained(top: Path) -> Iterator[str]:
    """Yield what in *top* leads out of it."""
    real = os.path.realpath(top)
    for where, folders, files in os.walk(top):
        for entry in (*folders, *files):
            path = os.path.join(where, entry)
            goal = os.path.realpath(path)
            try:
                goal = os.path.realpath(path, strict=True)
            except OSError as error:
                if error.errno == errno.ELOOP:
                    continue  # It leads nowhere: a circle.
            if goal != real and not goal.startswith(f"{real}/"):
                yield path


def checked(place: Path, act: Callable[[Path], object]) -> str:
    """Do *act* with a folder to extract to; nothing else may change, and errors are ours."""
    dest = place / "dest"
    try:
        act(dest)
        ended = "extracted"
        assert list(contained(dest)) == []
        for where, folders, files in os.walk(dest):
            for entry in (*folders, *files):
                assert not os.lstat(os.path.join(where, entry)).st_mode & 0o7000
    except (IntegrityError, DataError) as error:
        ended = type(error).__name__
    assert {path.name for path in place.iterdir()} <= {"dest", "sentinel"}
    assert (place / "sentinel").read_bytes() == b"untouched"
    if dest.exists():
        shutil.rmtree(dest)
    return ended


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a folder with something in it that must stay as it is."""
    (tmp_path / "place").mkdir()
    (tmp_path / "place" / "sentinel").write_bytes(b"untouched")
    return tmp_path / "place"


def test_a_harmless_archive_is_extracted(place: Path) -> None:
    assert checked(place, lambda dest: extract_archive(io.BytesIO(VALID), dest)) == "extracted"


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_no_archive_writes_outside_or_raises_an_unexpected_error(place: Path, seed: int) -> None:
    rng = random.Random(seed)
    ends: dict[str, int] = {}
    for _ in range(CASES):
        data = crafted(rng) if rng.random() < 0.5 else mutated(rng)

        def extract(dest: Path, data: bytes = data) -> None:
            extract_archive(io.BytesIO(data), dest, max_size=MAX_SIZE, max_entries=1000)

        ended = checked(place, extract)
        ends[ended] = ends.get(ended, 0) + 1
    # Some archives are harmless, and the others are refused for several reasons.
    assert ends["extracted"] > CASES // 50
    assert ends["UnsafeArchiveError"] > CASES // 20
    assert ends["IntegrityError"] > CASES // 20


def test_no_set_of_packs_and_files_writes_outside(place: Path) -> None:
    rng = random.Random(99)
    ends: dict[str, int] = {}
    for _ in range(CASES):
        packs = [crafted(rng) for _ in range(rng.randrange(1, 4))]
        path = rng.choice(NAMES)

        def extract(dest: Path, packs: list[bytes] = packs, path: str = path) -> None:
            extraction = Extraction(dest)
            for data in packs:
                extraction.add(Contents(io.BytesIO(data), max_size=MAX_SIZE, max_entries=1000))
            extraction.place(TreeEntry(path, "file", 0o644, 1, "0" * 64)).write_bytes(b"x")
            extraction.finish()

        ended = checked(place, extract)
        ends[ended] = ends.get(ended, 0) + 1
    assert ends["UnsafeArchiveError"] > CASES // 20
    assert ends.get("extracted", 0) > 0
