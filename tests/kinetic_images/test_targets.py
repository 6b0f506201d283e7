"""A target has the tags and markers that Python has there."""

from __future__ import annotations

import platform
import sys

import pytest
from packaging.markers import default_environment
from packaging.tags import sys_tags

from kinetic_images.targets import Machine, Target


def this_machine() -> Target:
    library, version = platform.libc_ver()
    machine = platform.machine()
    if sys.platform != "linux" or library != "glibc" or machine not in ("x86_64", "aarch64"):
        pytest.skip("This machine is no target: not Linux with glibc on x86_64 or aarch64.")
    major, minor = map(int, version.split(".")[:2])
    known: dict[str, Machine] = {"x86_64": "x86_64", "aarch64": "aarch64"}
    python = "{}.{}".format(*sys.version_info)
    return Target(python=python, machine=known[machine], glibc=(major, minor))


def test_the_tags_of_this_machine_are_those_that_packaging_finds_in_that_order() -> None:
    assert list(this_machine().tags()) == list(sys_tags())


def test_the_markers_of_this_machine_are_those_of_this_python() -> None:
    markers = this_machine().markers(sys.version_info.micro)
    expected = {**default_environment(), "platform_release": "", "platform_version": ""}
    assert markers == expected


def test_platforms_and_architectures_have_the_names_of_uv_and_of_registries() -> None:
    arm = Target(python="3.12", machine="aarch64", glibc=(2, 28))
    assert (arm.platform, arm.architecture) == ("aarch64-manylinux_2_28", "arm64")
    assert Target(python="3.12").architecture == "amd64"
