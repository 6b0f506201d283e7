from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kinetic_payload.layout import WIRE_LINE
from kinetic_runner.child.imports import after_import, with_kinetic

ASK = """
import sys
bundle, installed = sys.argv[1:]
sys.path[:0] = [bundle]
import kinetic_payload, kinetic_runner
sys.path[:1] = [installed]
sys.path += [bundle, bundle + "/light"]
from kinetic_runner.child.imports import with_kinetic
sys.path[:] = with_kinetic(sys.path)
import kinetic
print(kinetic.ORIGIN, len(sys.path) == len(set(sys.path)))
"""
WIRE = f'"""Ours."""\n{WIRE_LINE}\n'
UNUSABLE = "1 / 0"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param({}, "light", id="nothing"),
        pytest.param(
            {"kinetic/__init__.py": "ORIGIN = 'installed'", "kinetic/_wire.py": WIRE},
            "installed",
            id="ours",
        ),
        pytest.param(
            {"kinetic/__init__.py": UNUSABLE, "kinetic/_wire.py": f"{WIRE.strip()}0"},
            "light",
            id="another format",
        ),
        pytest.param({"kinetic/__init__.py": UNUSABLE}, "light", id="another package"),
        pytest.param({"kinetic.py": UNUSABLE}, "light", id="another module"),
        pytest.param({"kinetic/data.txt": ""}, "light", id="a folder"),
    ],
)
def test_the_installed_kinetic_is_used_only_if_it_is_ours_and_compatible(
    bundle, tmp_path, files, expected
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)

    command = [sys.executable, "-I", "-S", "-c", ASK, str(bundle), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, check=True, text=True)

    assert done.stdout == f"{expected} True\n"


def test_without_a_bundle_the_path_stays_as_it_is() -> None:
    assert with_kinetic(["a", "b/light"]) == ["a", "b/light"]


def test_the_hook_waits_for_a_real_import(tmp_path: Path, monkeypatch: Any) -> None:
    name = f"late_{os.getpid()}_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{name}.py").write_text("ready = True")
    monkeypatch.syspath_prepend(tmp_path)
    seen: list[bool] = []
    finders = list(sys.meta_path)

    after_import(name, lambda module: seen.append(module.ready))
    assert importlib.util.find_spec(name) is not None
    assert seen == []
    __import__(name)

    assert seen == [True]
    assert sys.meta_path == finders
