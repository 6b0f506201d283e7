"""A lock is made once, kept without credentials, and used while the request is the same."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from locked_project import Project, write_wheel

from kinetic_images.errors import InstallError


class Guarded(SimpleHTTPRequestHandler):
    """Serves a folder to the user `me` with the password `hunter2`."""

    def do_GET(self) -> None:
        expected = f"Basic {base64.b64encode(b'me:hunter2').decode()}"
        if self.headers.get("Authorization") == expected:
            super().do_GET()
            return
        self.send_response(401)
        self.send_header("WWW-Authenticate", 'Basic realm="packages"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        pass


@contextmanager
def index(folder: Path) -> Iterator[str]:
    """Serve *folder*; yield HOST:PORT."""
    handler = partial(Guarded, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()


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


def test_a_refresh_sees_what_the_index_has_now(project: Project) -> None:
    project.wheel("alpha")
    project.require("alpha")
    project.lock()
    project.wheel("alpha", "2.0")
    assert [package.version for package in project.lock(refresh=True).packages] == ["2.0"]
    assert [package.version for package in project.lock().packages] == ["2.0"]


def test_another_target_is_another_lock(project: Project) -> None:
    project.wheel("alpha")
    project.require("alpha ; python_version < '3.12'", "alpha ; sys_platform == 'win32'")
    assert len(project.lock().packages) == 1
    assert len(project.lock(None).packages) in (0, 1)
    assert project.runs() == 2


def test_a_file_that_is_gone_is_resolved_again(project: Project) -> None:
    project.wheel("alpha")
    project.require("alpha")
    project.lock()
    (project.packages / "alpha-1.0-py3-none-any.whl").unlink()
    project.wheel("alpha", "2.0")
    assert project.files() == ["alpha-2.0-py3-none-any.whl"]


@pytest.mark.parametrize(
    "damage", [b"", b"[[packages]]\nname = 'alpha'\n", b"\xff", b"packages = 3"]
)
def test_a_damaged_lock_is_made_again(project: Project, damage: bytes) -> None:
    project.wheel("alpha")
    project.require("alpha")
    lock = project.lock()
    (kept,) = (project.home / "cache" / "locks").glob("*.toml")
    kept.write_bytes(damage)
    assert project.lock() == lock


def test_passwords_are_used_and_not_kept(project: Project) -> None:
    page = project.packages / "alpha" / "index.html"
    page.parent.mkdir()
    page.write_text('<a href="../alpha-1.0-py3-none-any.whl">alpha-1.0-py3-none-any.whl</a>')
    project.wheel("alpha")
    project.wheel("beta")
    with index(project.packages) as host:
        (project.root / "requirements.txt").write_text(
            f"--index-url http://me:hunter2@{host}\nalpha\n"
            f"beta @ http://me:hunter2@{host}/beta-1.0-py3-none-any.whl?token=hunter2\n"
        )
        addresses = [package.address for package in project.lock().packages]
    assert addresses == [f"http://{host}/{name}-1.0-py3-none-any.whl" for name in ("alpha", "beta")]
    kept = [path for path in project.home.rglob("*") if path.is_file()]
    assert kept
    assert not [path for path in kept if b"hunter2" in path.read_bytes()]


def test_a_wrong_password_is_not_printed_and_leaves_nothing(project: Project) -> None:
    with index(project.packages) as host:
        (project.root / "requirements.txt").write_text(
            f"--index-url http://me:wr0ng@{host}\nalpha\n"
            f"beta @ http://me:wr0ng@{host}/beta-1.0-py3-none-any.whl\n"
        )
        with pytest.raises(InstallError) as caught:
            project.lock()
    assert "401" in str(caught.value)
    assert "wr0ng" not in str(caught.value) + caught.value.output
    kept = [path for path in project.home.rglob("*") if path.is_file()]
    assert not [path for path in kept if path.suffix == ".toml" or b"wr0ng" in path.read_bytes()]


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


def test_a_file_that_was_replaced_is_resolved_again(project: Project) -> None:
    project.wheel("alpha")
    project.require("alpha")
    (before,) = project.lock().packages
    project.wheel("alpha", "1.0", "os-name-is-unimportant ; sys_platform == 'none'")
    (after,) = project.lock().packages
    assert (after.file, after.sha256 == before.sha256) == (before.file, False)


def test_a_newer_copy_of_our_own_package_replaces_the_one_in_a_lock(
    project: Project, tmp_path: Path
) -> None:
    project.wheel("plugin", "1.0", "kinetic")
    project.require("plugin")
    for version in ("0.1", "0.2"):
        own = tmp_path / f"copy{version}" / f"kinetic-{version}-py3-none-any.whl"
        write_wheel(own, "kinetic", version)
        package, _ = project.lock(fallback={"kinetic": own}).packages
        assert package.version == version
