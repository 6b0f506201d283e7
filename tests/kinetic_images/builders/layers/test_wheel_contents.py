from __future__ import annotations

import copy
import os
import zipfile
from pathlib import Path
from typing import Any

import pytest
from wheel_maker import WHEEL, make_wheel

from kinetic_images.builders.layers.wheel_contents import Wheel
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
        ({"wheel": WHEEL + "X: " + "y" * 300_000}, r"WHEEL has 300\d{3} bytes"),
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


@pytest.mark.parametrize("kind", KINDS)
def test_content_comes_in_pieces_of_a_megabyte_with_any_compression(
    tmp_path: Path, kind: int
) -> None:
    path = make_wheel(tmp_path)
    with zipfile.ZipFile(path, "a", kind) as archive:
        archive.writestr("demo.bin", bytes(3 << 20))
    wheel = Wheel(path)
    info = next(each.info for each in wheel.entries if each.path.endswith("demo.bin"))

    assert [len(piece) for piece in wheel.content(info)] == [1 << 20] * 3


@pytest.mark.parametrize(
    "changes",
    [
        {"file_size": 999},
        {"file_size": 1001},
        {"compress_size": 5},
        {"CRC": 0},
        {"header_offset": 1},
        {"header_offset": 10**9},
    ],
)
def test_a_directory_that_contradicts_the_content_is_noticed(
    tmp_path: Path, changes: dict[str, int]
) -> None:
    wheel = Wheel(make_wheel(tmp_path, {"demo.bin": bytes(range(250)) * 4}))
    info = next(each.info for each in wheel.entries if each.path.endswith("demo.bin"))
    for field, value in changes.items():
        setattr(info, field, value)

    with pytest.raises(InvalidWheelError, match=r"'demo\.bin' cannot be read"):
        list(wheel.content(info))
