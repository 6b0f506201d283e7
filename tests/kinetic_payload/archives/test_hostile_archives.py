"""Thousands of archives that an enemy could write: nothing is written outside, no error is foreign."""

from __future__ import annotations

import errno
import io
import os
import random
import shutil
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kinetic_payload.archives.extract import Contents, Extraction, extract_archive
from kinetic_payload.archives.zip_format import Member, central_header, end_records, local_header
from kinetic_payload.digests import FileHasher, TreeEntry
from kinetic_payload.errors import DataError, IntegrityError

ROUNDS = 3
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
    what = rng.choice(("size", "compressed", "crc", "offset", "method", "digest", "mode"))
    if what in ("size", "compressed", "offset"):
        setattr(member, what, rng.choice((*SIZES, getattr(member, what) + rng.choice((-1, 1)))))
        setattr(member, what, max(0, getattr(member, what)))
    elif what == "crc":
        member.crc ^= 1
    elif what == "method":
        member.method = rng.choice((0, 8, 9, 12, 99))
    elif what == "digest":
        member.digest = rng.randbytes(32).hex()
    else:
        member.mode = rng.choice((0, 0o777))


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


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_no_archive_writes_outside_or_raises_an_unexpected_error(place: Path, seed: int) -> None:
    rng = random.Random(seed)
    ends: dict[str, int] = {}
    for _ in range(CASES):
        data = crafted(rng)

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
