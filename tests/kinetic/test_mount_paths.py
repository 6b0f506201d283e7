from __future__ import annotations

import pytest

from kinetic import Data
from kinetic.errors import InvalidRequestError
from kinetic.mount_paths import check_volumes

DATA = Data("gs://bucket/data/")


@pytest.mark.parametrize(
    ("given", "normalised"),
    [
        (["/data/"], ["/data"]),
        (["//data//train//", "/mnt/x/./y"], ["/data/train", "/mnt/x/y"]),
        # These only begin like a folder of the system, or like each other.
        (["/usrdata", "/apple", "/data", "/data2"], ["/usrdata", "/apple", "/data", "/data2"]),
    ],
)
def test_free_paths_are_normalised(given: list[str], normalised: list[str]) -> None:
    assert list(check_volumes(dict.fromkeys(given, DATA))) == normalised


@pytest.mark.parametrize(
    "path",
    [
        *("data", "./data", "", "~/data", "/", "//", "/.", "/data/../etc", "/.."),
        *("/app", "/app/", "/app/x", "/usr", "/usr/local/data", "/etc", "/proc", "/sys", "/dev"),
        *("/dev/shm", "/tmp", "/tmp/x", "/workspace", "/workspace/x", "/home", "/bin", "/lib64"),
        *("/a\0b", "/a\nb", "//usr", "/var/run/secrets", 3),
    ],
)
def test_a_relative_or_reserved_path_is_refused(path) -> None:
    with pytest.raises(InvalidRequestError, match="such as /data"):
        check_volumes({path: DATA})


@pytest.mark.parametrize("second", ["/data", "/data/", "/data/train", "/data/a/b"])
@pytest.mark.parametrize("reverse", [False, True])
def test_volumes_at_or_inside_each_other_are_refused(second: str, reverse: bool) -> None:
    paths = ["//data", second]

    with pytest.raises(InvalidRequestError):
        check_volumes(dict.fromkeys(reversed(paths) if reverse else paths, DATA))


@pytest.mark.parametrize("path", ["/jobs", "/jobs/x", "/srv"])
def test_a_path_at_inside_or_above_a_workspace_is_refused(path: str) -> None:
    with pytest.raises(InvalidRequestError, match="jobs work"):
        check_volumes({path: DATA}, workspaces=["/jobs", "/srv/jobs"])


def test_a_value_that_is_not_data_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match=r"not a kinetic\.Data"):
        check_volumes({"/data": "./dataset"})
