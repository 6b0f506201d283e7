"""A project of a user's, imported into this process as a script would import it."""

from __future__ import annotations

import importlib
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest


class Project:
    """A folder that is on `sys.path`, with a top-level package of a name that no other test uses."""

    def __init__(self, root: Path, package: str) -> None:
        self.root = root
        self.package = package
        self.write("pyproject.toml", "[project]\nname = 'users-project'\nversion = '1'\n")
        self.write(f"{package}/__init__.py", "")

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return path

    def module(self, name: str, text: str) -> ModuleType:
        """Write the package's module *name* and import it."""
        self.write(f"{self.package}/{name.replace('.', '/')}.py", text)
        importlib.invalidate_caches()
        return importlib.import_module(f"{self.package}.{name}")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    made = Project(tmp_path / "project", f"users_{abs(hash(tmp_path)):x}")
    monkeypatch.syspath_prepend(made.root)
    yield made
    for name in [name for name in sys.modules if name.partition(".")[0] == made.package]:
        del sys.modules[name]
