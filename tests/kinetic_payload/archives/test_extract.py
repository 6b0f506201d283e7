from __future__ import annotations

import hashlib
import io
import os
import stat
import struct
import subprocess
import sys
import tracemalloc
import zipfile
from pathlib import Path

import pytest

from kinetic_payload.archives.extract import extract_archive
from kinetic_payload.archives.safe_paths import link_goal, unsafe_path
from kinetic_payload.archives.zip_format import (
    Member,
    central_header,
    end_records,
    local_header,
    read_directory,
)
from kinetic_payload.errors import IntegrityError, PackagingError, UnsafeArchiveError
from kinetic_payload.project.snapshot import Snapshot, take_snapshot


def archived(snapshot: Snapshot) -> io.BytesIO:
    stream = io.BytesIO()
    assert snapshot.write(stream) == len(stream.getvalue())
    stream.seek(0)
    return stream


def round_trip(root: Path, dest: Path) -> Snapshot:
    snapshot = take_snapshot(root)
    assert extract_archive(archived(snapshot), dest, expected_digest=snapshot.digest)
    return snapshot


def evil_zip(*entries: tuple[str, bytes, int]) -> io.BytesIO:
    """Return a zip with these names, contents and Unix modes, as anybody could write it."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, data, mode in entries:
            info = zipfile.ZipInfo(name)
            info.create_system = 3
            info.external_attr = mode << 16
            digest = hashlib.sha256(name.encode() + b"\0" + data).digest()
            info.extra = struct.pack("<2H", 0x4E4B, 32) + digest
            archive.writestr(info, data)
    return stream


FILE = stat.S_IFREG | 0o644
LINK = stat.S_IFLNK | 0o777


def test_the_standard_library_reads_our_archives(tmp_path: Path) -> None:
    contents = {
        "text": b"a line of text\n" * 300_000,
        "noise": os.urandom(2_500_000),
        "small": b"x",
        "empty": b"",
        "ünï\ncode": b"data " * 100,
    }
    for entry, data in contents.items():
        (tmp_path / entry).write_bytes(data)
    stream = archived(take_snapshot(tmp_path))

    with zipfile.ZipFile(stream) as archive:
        assert archive.testzip() is None
        assert {info.filename: archive.read(info) for info in archive.infolist()} == contents
        methods = {info.filename: info.compress_type for info in archive.infolist()}
    assert methods["text"] == zipfile.ZIP_DEFLATED
    assert methods["noise"] == zipfile.ZIP_STORED
    for member in read_directory(stream, max_entries=10):
        stream.seek(member.offset)
        assert stream.read(len(header := local_header(member))) == header


def test_without_the_fast_compressor_an_archive_has_the_same_digest(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_bytes(b"some text " * 500_000)
    (tmp_path / "in" / "b").write_bytes(b"some text " * 500)
    snapshot = take_snapshot(tmp_path / "in")
    script = (
        "import sys; sys.modules['isal'] = None\n"
        "from pathlib import Path\n"
        "from kinetic_payload.project.snapshot import take_snapshot\n"
        "take_snapshot(Path(sys.argv[1])).write(open(sys.argv[2], 'wb'))"
    )
    written, digest = tmp_path / "a.zip", snapshot.digest
    subprocess.run([sys.executable, "-c", script, tmp_path / "in", written], check=True)

    assert extract_archive(written, tmp_path / "out", expected_digest=digest) == digest


def test_memory_does_not_grow_with_a_file(tmp_path: Path) -> None:
    with (tmp_path / "big").open("wb") as file:
        for _ in range(12):
            file.write(os.urandom(4 << 20) + b"text" * (1 << 20))
    snapshot = take_snapshot(tmp_path)
    out = tmp_path.with_name(tmp_path.name + ".zip")

    tracemalloc.start()
    with out.open("wb") as stream:
        snapshot.write(stream)
    extract_archive(out, tmp_path.with_name(tmp_path.name + ".out"))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert snapshot.size == 96 << 20
    assert peak < 48 << 20


@pytest.mark.parametrize("size", [10, 3 << 20])
def test_a_file_that_changed_since_is_named(tmp_path: Path, size: int) -> None:
    (tmp_path / "steady").write_bytes(b"s" * size)
    (tmp_path / "moving.txt").write_bytes(b"a" * size)
    snapshot = take_snapshot(tmp_path)
    (tmp_path / "moving.txt").write_bytes(b"b" * size)

    with pytest.raises(PackagingError, match=r"'moving\.txt' changed"):
        snapshot.write(io.BytesIO())
    (tmp_path / "moving.txt").unlink()
    with pytest.raises(PackagingError, match=r"'moving\.txt' changed"):
        snapshot.write(io.BytesIO())


def test_a_file_that_only_grew_is_archived_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"one")
    snapshot = take_snapshot(tmp_path)
    with (tmp_path / "log").open("ab") as log:
        log.write(b"two")

    dest = tmp_path.with_name(tmp_path.name + ".out")
    extract_archive(archived(snapshot), dest, expected_digest=snapshot.digest)

    assert (dest / "log").read_bytes() == b"one"


@pytest.mark.parametrize(
    "path",
    [
        "/etc/x", "../x", "a/../../x", "a/..", "..", "\\x", "..\\x", "a\\..\\x", "C:\\x", "c:/x", "a//b",
        "./a", "a/.", "",
    ],
)  # fmt: skip
def test_a_path_that_leads_elsewhere_is_refused(tmp_path: Path, path: str) -> None:
    assert unsafe_path(path) is not None
    if path:
        with pytest.raises(UnsafeArchiveError):
            extract_archive(evil_zip(("fine", b"1", FILE), (path, b"1", FILE)), tmp_path / "out")
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("path", ["a", ".a", "..a", "a..", "a\\b", "a b/c", "a:b", "~", "-", "…/x"])
def test_an_odd_path_that_stays_inside_is_accepted(path: str) -> None:
    assert unsafe_path(path) is None


@pytest.mark.parametrize(
    "links",
    [
        {"l": "/etc"},
        {"l": ".."},
        {"l": "a/../../x"},
        {"d/l": "../.."},
        {"d": "e/f/g", "l": "d/../../../../x"},
        {"e/up": "..", "l": "e/up/../x"},
        {"l": ""},
    ],
)
def test_links_that_lead_out_are_refused(tmp_path: Path, links: dict[str, str]) -> None:
    archive = evil_zip(*((path, target.encode(), LINK) for path, target in links.items()))

    with pytest.raises(UnsafeArchiveError, match="link"):
        extract_archive(archive, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("links", "link", "goal"),
    [
        ({"l": "a/b"}, "l", "a/b"),
        ({"d/l": ".."}, "d/l", ""),
        ({"d/l": "../x", "m": "d/l/y"}, "m", "x/y"),
        ({"l": "m", "m": "l"}, "l", "l"),
    ],
)
def test_links_that_stay_inside_are_followed(links: dict[str, str], link: str, goal: str) -> None:
    assert link_goal(link, links) == goal


@pytest.mark.parametrize(
    "entries",
    [
        [("l", b"sub", LINK), ("l/x", b"1", FILE)],
        [("l/x", b"1", FILE), ("l", b"sub", LINK)],
        [("f", b"1", FILE), ("f/x", b"1", FILE)],
        [("f", b"1", FILE), ("f", b"2", FILE)],
        [("f", b"1", FILE), ("f/", b"", stat.S_IFDIR | 0o755)],
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_conflicting_entries_are_refused(tmp_path: Path, entries: list) -> None:
    with pytest.raises(UnsafeArchiveError):
        extract_archive(evil_zip(*entries), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_bombs_are_refused_by_their_declared_sizes(tmp_path: Path) -> None:
    big = evil_zip(("small", b"1", FILE), ("big", b"0" * 2000, FILE))
    many = evil_zip(("a", b"", FILE), ("b", b"", FILE))

    with pytest.raises(UnsafeArchiveError, match="'big'"):
        extract_archive(big, tmp_path / "out", max_size=1000)
    with pytest.raises(IntegrityError, match="2 entries"):
        extract_archive(many, tmp_path / "out", max_entries=1)


def test_bombs_are_refused_by_their_actual_sizes(tmp_path: Path) -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb", b"0" * 10_000_000)
    data = bytearray(stream.getvalue())
    at = data.rindex(b"PK\1\2")
    data[at + 24 : at + 28] = struct.pack("<L", 1000)

    with pytest.raises(UnsafeArchiveError, match=r"'bomb'.*more bytes than it declares"):
        extract_archive(io.BytesIO(bytes(data)), tmp_path / "out")
    assert (tmp_path / "out" / "bomb").stat().st_size <= 1000


def test_entries_that_share_their_bytes_are_refused(tmp_path: Path) -> None:
    stream = evil_zip(("a", b"0" * 100, FILE), ("b", b"0" * 100, FILE))
    data = bytearray(stream.getvalue())
    at = data.rindex(b"PK\1\2")
    data[at + 42 : at + 46] = struct.pack("<L", 0)

    with pytest.raises(UnsafeArchiveError, match="shares"):
        extract_archive(io.BytesIO(bytes(data)), tmp_path / "out")


def test_special_files_are_refused_and_special_bits_dropped(tmp_path: Path) -> None:
    with pytest.raises(IntegrityError, match="'pipe'"):
        extract_archive(evil_zip(("pipe", b"", stat.S_IFIFO | 0o644)), tmp_path / "a")

    extract_archive(evil_zip(("tool", b"1", stat.S_IFREG | 0o6755 | 0o1000)), tmp_path / "b")

    assert stat.S_IMODE((tmp_path / "b" / "tool").stat().st_mode) == 0o755


def test_another_tree_than_the_expected_one_writes_nothing(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_text("1")

    with pytest.raises(IntegrityError, match=r"holds the tree .*; expected"):
        extract_archive(
            archived(take_snapshot(tmp_path / "in")),
            tmp_path / "out",
            expected_digest=hashlib.sha256(b"").hexdigest(),
        )
    assert not (tmp_path / "out").exists()


def test_every_flipped_byte_and_every_cut_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_text("contents")
    (tmp_path / "in" / "b").write_text("text " * 200)
    (tmp_path / "in" / "l").symlink_to("a")
    digest = take_snapshot(tmp_path / "in").digest
    good = archived(take_snapshot(tmp_path / "in")).getvalue()

    for at in range(len(good)):
        data = bytearray(good)
        data[at] ^= 0x41
        try:
            extract_archive(io.BytesIO(bytes(data)), tmp_path / str(at), expected_digest=digest)
        except IntegrityError:
            continue
        # The byte has no meaning for Kinetic: times, versions, counts of disks.
        assert take_snapshot(tmp_path / str(at)).digest == digest
    for length in range(0, len(good), 7):
        with pytest.raises(IntegrityError):
            extract_archive(io.BytesIO(good[:length]), tmp_path / "out")


def test_nothing_is_extracted_into_a_folder_with_contents(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()

    with pytest.raises(UnsafeArchiveError, match="not empty"):
        extract_archive(evil_zip(("a", b"1", FILE)), tmp_path)


def test_archives_beyond_four_gigabytes_keep_their_sizes() -> None:
    big = Member(
        "big", "file", 0o644, size=5 << 32, compressed=3 << 32, offset=7 << 32, digest="ab" * 32
    )
    directory = central_header(big)
    stream = io.BytesIO(directory + end_records(1, 0, len(directory)))
    far = io.BytesIO(directory + end_records(70_000, 0, len(directory)))

    (found,) = read_directory(stream, max_entries=10)

    assert (found.size, found.compressed, found.offset) == (5 << 32, 3 << 32, 7 << 32)
    assert found.digest == "ab" * 32
    with pytest.raises(IntegrityError, match="70000"):
        list(read_directory(far, max_entries=10))


def test_extraction_loads_nothing_but_the_standard_library() -> None:
    script = (
        "import sys, kinetic_payload.archives.extract\n"
        "print(*sorted({'zipfile', 'kinetic_payload.archives.write', 'concurrent.futures', 'msgspec', 'isal'} & set(sys.modules)))"
    )
    command = [sys.executable, "-S", "-c", f"import sys; sys.path[:] = {sys.path!r}; {script}"]

    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip() == ""


def test_folders_can_be_removed_after_extraction_whatever_their_modes_were(tmp_path: Path) -> None:
    (tmp_path / "in" / "fixed").mkdir(parents=True)
    (tmp_path / "in" / "fixed" / "a").touch()
    (tmp_path / "in" / "fixed").chmod(0o555)

    round_trip(tmp_path / "in", tmp_path / "out")
    extract_archive(evil_zip(("locked/", b"", stat.S_IFDIR)), tmp_path / "other")

    assert stat.S_IMODE((tmp_path / "out" / "fixed").stat().st_mode) == 0o755
    assert stat.S_IMODE((tmp_path / "other" / "locked").stat().st_mode) == 0o700
    (tmp_path / "in" / "fixed").chmod(0o755)
