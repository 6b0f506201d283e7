"""What tests of several modules share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from file_server import FileServer, running_file_server
from locked_project import Project


@pytest.fixture
def index() -> Iterator[FileServer]:
    """A web server with files of packages."""
    with running_file_server() as server:
        yield server


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project whose packages are in a folder on this machine."""
    return Project(tmp_path)
