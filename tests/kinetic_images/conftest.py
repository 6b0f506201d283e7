"""What tests of several modules share."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from file_server import FileServer, running_file_server
from locked_project import Project

from kinetic_images.uv import find_uv, uv_environment

if TYPE_CHECKING:
    from kinetic_servers.registry import RegistryServer


@pytest.fixture
def index() -> Iterator[FileServer]:
    """A web server with files of packages."""
    with running_file_server() as server:
        yield server


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    """A registry in this process."""
    from kinetic_servers.registry import RegistryServer

    with RegistryServer() as running:
        yield running


@pytest.fixture(scope="session")
def uv_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of uv that knows this interpreter and nothing else: looking at it takes longer than resolving."""
    folder = tmp_path_factory.mktemp("uv")
    environ = uv_environment({"UV_CACHE_DIR": str(folder / "cache"), "HOME": str(folder)})
    (folder / "none.txt").touch()
    options = ("--no-index", "--python", sys.executable)
    replace(find_uv(), environment=environ).run(
        "pip", "compile", *options, str(folder / "none.txt")
    )
    return folder / "cache"


@pytest.fixture
def project(tmp_path: Path, uv_cache: Path) -> Project:
    """A project whose packages are in a folder on this machine."""
    made = Project(tmp_path)
    shutil.copytree(uv_cache, made.environ["UV_CACHE_DIR"])
    return made


@pytest.fixture(scope="session")
def all_packages() -> Iterator[FileServer]:
    """One web server for all tests, so that the address of their packages is the same."""
    with running_file_server() as server:
        yield server


@pytest.fixture
def packages(all_packages: FileServer, project: Project) -> FileServer:
    """A web server with the packages of *project*, which takes them from there."""
    all_packages.folder = project.packages
    all_packages.required, all_packages.is_down = None, False
    project.links = all_packages.url("/")
    return all_packages
