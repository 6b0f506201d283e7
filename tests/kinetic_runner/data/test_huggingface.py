"""Loading data sets with all versions of `datasets`, or without; the real library is in tests/wire."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from kinetic_payload.errors import DataError
from kinetic_runner.data import huggingface

FAKE = """
import json, os, sys
from pathlib import Path
__version__ = {version!r}

class Loaded(list):
    def save_to_disk(self, folder):
        Path(folder).mkdir()
        Path(folder, "asked.json").write_text(json.dumps(asked))

def load_dataset(*args, **kwargs):
    global asked
    asked = [list(args), kwargs, os.getcwd(), os.environ.get("HF_HOME")]
    {body}
    return Loaded([1, 2, 3])
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return a function that installs a library of this version, which runs *body* when it loads a set."""
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH", "HF_HOME"):
        monkeypatch.delenv(name, raising=False)

    def install(version: str = "3.6.0", body: str = "pass") -> None:
        folder = tmp_path / "installed"
        folder.mkdir()
        (folder / "datasets.py").write_text(FAKE.format(version=version, body=body))
        monkeypatch.setenv("PYTHONPATH", str(folder))

    return install


def load(dest: Path, uri: str = "hf://org/set?split=train", **options) -> list[str]:
    lines: list[str] = []
    huggingface.load(uri, dest, print_line=lines.append, **options)
    return lines


@pytest.mark.parametrize(
    ("version", "trusts", "flag"),
    [
        ("2.14.0", False, {}),
        ("2.16.1", False, {"trust_remote_code": False}),
        ("3.6.0", True, {"trust_remote_code": True}),
        ("5.2.0", False, {}),
    ],
)
def test_each_version_is_told_in_its_own_way_whether_to_run_code_of_a_set(
    install, tmp_path: Path, version: str, trusts: bool, flag: dict[str, bool]
) -> None:
    install(version)

    lines = load(tmp_path / "in" / "set", trusts=trusts)

    args, kwargs, cwd, _ = json.loads((tmp_path / "in" / "set" / "asked.json").read_text())
    assert args == ["org/set", None]
    assert kwargs == {"split": "train", "revision": None, "token": False, **flag}
    assert not Path(cwd).exists(), "it works in a folder of its own, which is removed"
    assert lines[0] == "loading hf://org/set?split=train"
    assert lines[1].startswith("loaded hf://org/set?split=train: 3 rows, ")


def test_without_the_library_the_hint_is_to_require_it(tmp_path: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    bare.chmod(0o755)

    with pytest.raises(DataError, match="needs the library 'datasets', which is not") as raised:
        load(tmp_path / "in" / "set", interpreter=str(bare))

    assert "Add 'datasets' to the requirements" in (raised.value.hint or "")
    assert os.listdir(tmp_path / "in") == []


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("os.kill(os.getpid(), 9)", "killed by signal 9, possibly for lack of memory"),
        ("os._exit(3)", "exit code 3"),
        ("raise ValueError('Unknown split. ' + 'x' * 5000)", "could not load it: Unknown split. x"),
    ],
)
def test_every_end_is_reported_in_a_line_and_leaves_nothing(
    install, tmp_path: Path, body: str, words: str
) -> None:
    install(body=body)

    with pytest.raises(DataError, match=words) as raised:
        load(tmp_path / "in" / "set")

    assert len(raised.value.message) < 1200
    assert os.listdir(tmp_path / "in") == []


def test_a_home_that_cannot_be_written_to_is_replaced_and_a_captured_token_is_left_to_the_library(
    install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install()
    (tmp_path / "home").write_text("no folder")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("HF_DATASETS_CACHE", raising=False)
    monkeypatch.setenv("HF_TOKEN", "hf_x")

    load(tmp_path / "in" / "set")

    _, kwargs, _, home = json.loads((tmp_path / "in" / "set" / "asked.json").read_text())
    assert kwargs["token"] is None
    assert Path(home).is_relative_to(tmp_path / "in")
    assert os.listdir(tmp_path / "in") == ["set"], "the cache is removed"
