from __future__ import annotations

import copy
import io
import os
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wheel_maker import WHEEL, make_wheel

from kinetic_images.builders.layers.wheel_contents import Wheel, content_of
from kinetic_images.errors import InvalidWheelError


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("/etc/passwd", "absolute"),
        ("../x.py", r"'\.\.'"),
        ("demo/../../x.py", r"'\.\.'"),
        ("demo//x.py", "empty part"),
        ("./demo.py", "empty part"),
        ("demo\\x.py", "backslash"),
        ("demo/x\n.py", "control character"),
        ("demo/.wh.__init__.py", "remove files of the base"),
        (".wh..wh..opq", "remove files of the base"),
        (f"demo/{'é' * 128}", "longer than Linux allows"),
        ("demo/" * 900 + "x", "longer than Linux allows"),
        ("demo-1.0.data/elsewhere/x", "unknown kind, 'elsewhere'"),
        ("demo-1.0.data/scripts/../../x", r"'\.\.'"),
    ],
)
def test_an_unsafe_path_is_refused_by_name(tmp_path: Path, path: str, problem: str) -> None:
    wheel = make_wheel(tmp_path, extra={path: b""})

    with pytest.raises(InvalidWheelError, match=problem) as error:
        Wheel(wheel)

    assert wheel.name in str(error.value)
    assert path.split("/")[-1].split("\n")[0].split("\\")[0] in str(error.value)


@pytest.mark.parametrize("mode", [0o120777, 0o010644, 0o060644])
def test_a_link_or_device_is_refused(tmp_path: Path, mode: int) -> None:
    wheel = make_wheel(tmp_path, {"demo/link": "/etc/passwd"}, modes={"link": mode})

    with pytest.raises(InvalidWheelError, match="'demo/link' is unsafe: it is a link or a device"):
        Wheel(wheel)


def test_files_that_share_their_bytes_are_refused(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, {"demo.py": os.urandom(9000)})
    with zipfile.ZipFile(wheel, "a") as archive:
        again = copy.copy(archive.getinfo("demo.py"))
        again.filename = "more.py"
        archive.filelist.append(again)
        archive.writestr("x", "")  # So that the list of files is written again.

    with pytest.raises(InvalidWheelError, match="its files overlap"):
        Wheel(wheel)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"wheel": None}, "no WHEEL"),
        ({"wheel": ""}, "Wheel-Version is ''"),
        ({"wheel": WHEEL.replace("1.0", "2.0")}, r"Wheel-Version is '2\.0'; only 1\.x"),
        ({"record": "a,b\n"}, "RECORD is malformed"),
        ({"record": "a,b,c,d\n"}, "RECORD is malformed"),
        ({"extra": {"demo/__init__.py/x": b""}}, "a file and a folder"),
        ({"extra": {"other-1.0.dist-info/METADATA": b""}}, "2 folders .dist-info"),
    ],
)
def test_a_wheel_that_contradicts_itself_or_its_format_is_refused(
    tmp_path: Path, changes: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InvalidWheelError, match=problem):
        Wheel(make_wheel(tmp_path, **changes)).record()


def test_a_later_minor_version_is_accepted_and_another_package_or_file_is_not(
    tmp_path: Path,
) -> None:
    path = make_wheel(tmp_path, wheel=WHEEL.replace("1.0", "1.9"), extra={"demo/folder/": b""})
    assert Wheel(path).entries

    other = path.rename(tmp_path / "other-1.0-py3-none-any.whl")
    with pytest.raises(InvalidWheelError, match=r"another package, 'demo-1\.0\.dist-info'"):
        Wheel(other)
    other.write_bytes(b"<html>not found</html>")
    with pytest.raises(InvalidWheelError, match="not a zip file"):
        Wheel(other)


def test_damaged_content_is_noticed(tmp_path: Path) -> None:
    path = make_wheel(tmp_path, {"demo.bin": bytes(range(256)) * 400})
    with zipfile.ZipFile(path) as archive:
        start = archive.getinfo("demo.bin").header_offset + 100
    data = bytearray(path.read_bytes())
    data[start] ^= 0xFF
    path.write_bytes(data)
    wheel = Wheel(path)
    entry = next(each for each in wheel.entries if each.path.endswith("demo.bin"))

    with pytest.raises(InvalidWheelError, match=r"'demo\.bin' cannot be read"):
        list(wheel.content(entry.info))


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
