"""A lock is made once, kept without credentials, and used while the request is the same."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path

import pytest
from file_server import FileServer
from locked_project import Project, write_wheel

from kinetic_images.errors import InstallError
from kinetic_images.lock.cache import usable_lock


def test_the_second_time_nothing_runs_and_nothing_is_reported(project: Project) -> None:
    project.wheel("alpha")
    project.require("alpha")
    first = project.lock()
    assert project.reports == [
        f"Resolving the dependencies in {project.root}/requirements.txt with uv."
    ]
    project.wheel("alpha", "2.0")
    project.require("# a comment", "Alpha")
    assert project.lock() == first
    assert (project.runs(), len(project.reports)) == (1, 1)

    refreshed = project.lock(refresh=True)
    assert [package.version for package in refreshed.packages] == ["2.0"]
    assert project.lock() == refreshed


@pytest.mark.parametrize("change", ["gone", "replaced"])
def test_a_file_that_is_gone_or_replaced_is_resolved_again(project: Project, change: str) -> None:
    project.wheel("alpha")
    project.require("alpha")
    (before,) = project.lock().packages
    if change == "gone":
        (project.packages / before.file).unlink()
        project.wheel("alpha", "2.0")
    else:
        project.wheel("alpha", "1.0", "os-name-is-unimportant ; sys_platform == 'none'")
    (after,) = project.lock().packages
    assert after.sha256 != before.sha256
    assert after.version == ("2.0" if change == "gone" else "1.0")


@pytest.mark.parametrize("damage", ["", "{", '{"packages": 3}'])
def test_a_damaged_lock_is_not_usable(project: Project, damage: str) -> None:
    project.wheel("alpha")
    project.require("alpha")
    assert usable_lock(damage, project.request()) is None


@pytest.mark.parametrize("password", ["hunter2", "wr0ng"])
def test_a_password_is_used_and_neither_kept_nor_printed(
    project: Project, packages: FileServer, password: str
) -> None:
    page = project.packages / "alpha" / "index.html"
    page.parent.mkdir()
    page.write_text('<a href="../alpha-1.0-py3-none-any.whl">alpha-1.0-py3-none-any.whl</a>')
    project.wheel("alpha")
    project.wheel("beta")
    packages.required = f"Basic {b64encode(b'me:hunter2').decode()}"
    host = f"127.0.0.1:{packages.port}"
    (project.root / "requirements.txt").write_text(
        f"--index-url http://me:{password}@{host}\nalpha\n"
        f"beta @ http://me:{password}@{host}/beta-1.0-py3-none-any.whl?token=hunter2\n"
    )
    if password == "hunter2":
        addresses = [package.address for package in project.lock().packages]
        assert addresses == [
            f"http://{host}/{name}-1.0-py3-none-any.whl" for name in ("alpha", "beta")
        ]
    else:
        with pytest.raises(InstallError, match="401") as caught:
            project.lock()
        assert password not in str(caught.value) + caught.value.output
        assert "hunter2" not in str(caught.value) + caught.value.output
    kept = [path for path in project.home.rglob("*") if path.is_file()]
    assert any(path.suffix == ".json" for path in kept) is (password == "hunter2")
    assert not [path for path in kept if password.encode() in path.read_bytes()]


def test_an_index_that_cannot_be_reached_is_an_error_and_tried_again_later(
    project: Project,
) -> None:
    project.wheel("alpha")
    (project.root / "requirements.txt").write_text("--index-url http://127.0.0.1:9/simple\nalpha\n")
    for _ in range(2):
        with pytest.raises(InstallError, match=r"127\.0\.0\.1:9"):
            project.lock()
    project.require("alpha")
    assert project.files() == ["alpha-1.0-py3-none-any.whl"]


def test_our_own_package_is_that_of_this_machine_also_if_it_changes(
    project: Project, tmp_path: Path
) -> None:
    project.wheel("kinetic", "99.0")
    project.wheel("plugin", "1.0", "kinetic")
    project.require("plugin")
    for version in ("0.1", "0.2"):
        own = tmp_path / f"copy{version}" / f"kinetic-{version}-py3-none-any.whl"
        write_wheel(own, "kinetic", version)
        package, _ = project.lock(fallback={"kinetic": own}).packages
        assert (package.version, package.address) == (version, own.as_uri())
