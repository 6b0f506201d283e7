from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kinetic_payload.layout import WIRE_LINE, WIRE_VERSION
from kinetic_runner.bundle import build_bundle

LIGHT = {"light/kinetic/__init__.py": b"WHOSE = 'light'\n"}
ASK = """
import sys
bundle, installed = sys.argv[1:]
sys.path[:0] = [bundle]
import kinetic_payload, kinetic_runner
sys.path[:1] = [installed]
sys.path += [bundle, bundle + "/light"]
from kinetic_runner.child.light_kinetic import with_kinetic
sys.path[:] = with_kinetic(sys.path)
import kinetic
print(kinetic.WHOSE, len(sys.path) == len(set(sys.path)))
"""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bundle") / "remote_runner.py"
    path.write_bytes(build_bundle(LIGHT))
    return path


def whose(bundle: Path, installed: Path, files: dict[str, str]) -> str:
    """Return which `kinetic` is imported where *files* are installed."""
    for name, text in files.items():
        (installed / name).parent.mkdir(parents=True, exist_ok=True)
        (installed / name).write_text(text)
    command = [sys.executable, "-I", "-S", "-c", ASK, str(bundle), str(installed)]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout.strip()


OURS = f'"""Ours."""\n{WIRE_LINE}\n'


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, "light"),
        ({"kinetic/__init__.py": "WHOSE = 'ours'", "kinetic/_wire.py": OURS}, "ours"),
        ({"kinetic/__init__.py": "1 / 0", "kinetic/_wire.py": f"{OURS.strip()}0"}, "light"),
        (
            {
                "kinetic/__init__.py": "1 / 0",
                "kinetic/_wire.py": f"WIRE_VERSION = {WIRE_VERSION}\n",
            },
            "light",
        ),
        ({"kinetic/__init__.py": "1 / 0"}, "light"),
        ({"kinetic.py": "1 / 0"}, "light"),
        ({"kinetic/data.txt": ""}, "light"),
    ],
    ids=[
        "nothing",
        "ours",
        "another format",
        "earlier modules",
        "a stranger's",
        "a stranger's module",
        "a folder",
    ],
)
def test_the_installed_kinetic_wins_only_if_it_is_ours_and_compatible(
    bundle, tmp_path, files, expected
) -> None:
    assert whose(bundle, tmp_path, files) == f"{expected} True"


def test_without_a_bundle_the_path_stays_as_it_is() -> None:
    from kinetic_runner.child.light_kinetic import with_kinetic

    assert with_kinetic(["a", "b/light"]) == ["a", "b/light"]
