from __future__ import annotations

import pytest

from kinetic import Data
from kinetic.errors import InvalidRequestError
from kinetic.mount_paths import check_volumes


@pytest.mark.parametrize(
    ("path", "mount"),
    [
        ("/data", "/data"),
        ("/data/", "/data"),
        ("//data//train//", "/data/train"),
        ("/mnt/x/./y", "/mnt/x/y"),
        ("/opt/someone/data", "/opt/someone/data"),
        ("/usrdata", "/usrdata"),
        ("/apple", "/apple"),
    ],
)
def test_a_path_of_its_own_is_taken_and_normalised(path: str, mount: str) -> None:
    data = Data("gs://bucket/data/")

    assert check_volumes({path: data}) == {mount: data}


@pytest.mark.parametrize(
    "path",
    [
        *("data", "./data", "", "~/data", "/", "//", "/.", "/data/../etc", "/.."),
        *("/app", "/app/", "/app/x", "/usr", "/usr/local/data", "/etc", "/proc", "/sys", "/dev"),
        *("/dev/shm", "/tmp", "/tmp/x", "/workspace", "/workspace/x", "/home", "/bin", "/lib64"),
        *("/a\0b", "/a\nb", "//usr", "/var/run/secrets", 3),
    ],
)
def test_a_path_that_belongs_to_something_else_is_refused(path) -> None:
    with pytest.raises(InvalidRequestError, match="such as /data"):
        check_volumes({path: Data("gs://bucket/data/")})


@pytest.mark.parametrize("second", ["/data", "/data/", "/data/train", "/data/a/b"])
@pytest.mark.parametrize("reverse", [False, True])
def test_volumes_that_lie_at_or_inside_each_other_are_refused(second: str, reverse: bool) -> None:
    paths = ["//data", second]
    volumes = {path: Data("gs://bucket/data/") for path in (reversed(paths) if reverse else paths)}

    with pytest.raises(InvalidRequestError):
        check_volumes(volumes)


def test_neighbours_with_a_common_beginning_are_fine() -> None:
    volumes = {"/data": Data("gs://bucket/a/"), "/data2": Data("gs://bucket/b/")}

    assert list(check_volumes(volumes)) == ["/data", "/data2"]


@pytest.mark.parametrize("path", ["/jobs", "/jobs/x", "/srv"])
def test_where_jobs_work_nothing_is_mounted(path: str) -> None:
    with pytest.raises(InvalidRequestError, match="jobs work"):
        check_volumes({path: Data("gs://bucket/a/")}, workspaces=["/jobs", "/srv/jobs"])


def test_a_value_that_is_no_data_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match=r"not a kinetic\.Data"):
        check_volumes({"/data": "./dataset"})
