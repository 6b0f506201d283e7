"""Wheels of our own packages come from the installation at hand, byte for byte the same."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from kinetic_images.errors import DependencyError
from kinetic_images.uv import find_uv
from kinetic_images.wheels import copied_wheel, own_closure, own_wheels


def test_a_wheel_holds_the_package_its_metadata_and_a_true_record(tmp_path: Path) -> None:
    (path,) = own_wheels(tmp_path, ["Kinetic_Payload"])
    with zipfile.ZipFile(path) as wheel:
        names = wheel.namelist()
        assert "kinetic_payload/py.typed" in names
        assert not [name for name in names if "__pycache__" in name]
        info = next(name for name in names if name.endswith("/METADATA")).rpartition("/")[0]
        assert b"\nName: kinetic-payload\n" in wheel.read(f"{info}/METADATA")
        recorded = wheel.read(f"{info}/RECORD").decode().splitlines()
    assert [row.split(",")[0] for row in recorded] == names


def test_the_same_installation_gives_the_same_file_at_the_same_place(tmp_path: Path) -> None:
    first, second = (own_wheels(tmp_path / name, ["kinetic-payload"])[0] for name in "ab")
    assert first.read_bytes() == second.read_bytes()
    assert first.relative_to(tmp_path / "a") == second.relative_to(tmp_path / "b")
    assert first.parent.name == hashlib.sha256(first.read_bytes()).hexdigest()[:32]


def test_an_installed_wheel_gives_the_same_wheel_again(tmp_path: Path) -> None:
    wheels = own_wheels(tmp_path / "wheels", ["kinetic-images", "kinetic-payload"])
    site = tmp_path / "site"
    names = [str(wheel) for wheel in wheels]
    options = ["--offline", "--no-deps", "--python", sys.executable, "--target", str(site)]
    find_uv().run("pip", "install", *options, *names)
    code = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1])\n"
        "from kinetic_images.wheels import __file__, own_wheels\n"
        "assert __file__.startswith(sys.argv[1])\n"
        "print(*own_wheels(Path(sys.argv[2]), ['kinetic-images', 'kinetic-payload']))\n"
    )
    command = [sys.executable, "-c", code, str(site), str(tmp_path / "wheels")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout.split() == names


def test_packages_of_ours_bring_those_of_ours_that_they_need() -> None:
    assert set(own_closure({"kinetic-images": ()})) == {"kinetic-images", "kinetic-payload"}


def test_other_packages_are_not_taken_for_ours_and_can_be_copied_if_they_are_installed(
    tmp_path: Path,
) -> None:
    with pytest.raises(DependencyError, match="not one of Kinetic's own"):
        own_wheels(tmp_path, ["kinetics"])
    with pytest.raises(DependencyError, match="not installed here"):
        copied_wheel(tmp_path, "no-such-distribution", "no_such_package")
    with zipfile.ZipFile(copied_wheel(tmp_path, "packaging", "packaging")) as archive:
        assert "packaging/version.py" in archive.namelist()
