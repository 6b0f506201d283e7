"""uv runs with a filtered environment, and its output is returned."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kinetic_images.errors import InstallError
from kinetic_images.uv import Uv, find_uv, index_variables, uv_environment


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_variables_of_indexes_and_choices_are_passed_on_and_those_of_projects_are_not() -> None:
    kept = {
        "UV_INDEX_URL": "https://h",
        "UV_INDEX_PRIVATE_PASSWORD": "x",
        "UV_CACHE_DIR": "/c",
        "UV_CONFIG_FILE": "/x",
        "UV_EXCLUDE_NEWER": "2020-01-01",
        "UV_PRERELEASE": "allow",
        "SSL_CERT_FILE": "/s",
        "HOME": "/h",
    }
    dropped = {
        "UV_PROJECT": "/p",
        "UV_PYTHON": "3.9",
        "VIRTUAL_ENV": "/v",
        "PYTHONPATH": "/p",
    }
    environment = uv_environment(kept | dropped)
    assert kept.items() <= environment.items()
    assert not dropped.keys() & environment.keys()
    assert environment["UV_PYTHON_DOWNLOADS"] == "never"


def test_relative_paths_of_variables_begin_in_the_folder_of_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "a b"
    folder.mkdir()
    monkeypatch.chdir(folder)
    here = f"file://{tmp_path}/a%20b"
    given = {
        "UV_INDEX": "corp=./simple https://h/a=b",
        "UV_DEFAULT_INDEX": "https://me:x@h",
        "UV_FIND_LINKS": "wheels,/abs,../more",
        "UV_CACHE_DIR": "cache",
        "UV_INDEX_STRATEGY": "first-index",
    }
    expected = {
        "UV_INDEX": f"corp={here}/simple https://h/a=b",
        "UV_DEFAULT_INDEX": "https://me:x@h",
        "UV_FIND_LINKS": f"{here}/wheels,/abs,{here}/../more",
    }
    environment = uv_environment(given)
    assert expected.items() <= environment.items()
    assert environment["UV_CACHE_DIR"] == f"{folder}/cache"
    assert index_variables(given) == expected


@pytest.mark.parametrize("text", ["echo uv 0.1.2", "exit 127", "echo what"])
def test_a_uv_on_path_that_is_too_old_or_broken_gives_way_to_the_installed_one(
    tmp_path: Path, text: str
) -> None:
    program = script(tmp_path / "uv", text)
    assert find_uv({"PATH": str(tmp_path)}).program != str(program)


def test_a_failure_has_the_output_of_uv_without_passwords_and_colours(tmp_path: Path) -> None:
    program = script(
        tmp_path / "uv",
        'printf "\\033[1merror\\033[0m: no https://me:hunter2@h/a.whl?token=hunter2 (no), $2\\n" >&2; exit 7',
    )
    uv = Uv(str(program), {"UV_INDEX_X_PASSWORD": "hunter2"})
    assert "hunter2" not in repr(uv)
    with pytest.raises(InstallError) as caught:
        uv.run("pip", "install")
    assert caught.value.output == "error: no https://h/a.whl (no), pip"
    assert caught.value.message == (
        "uv pip install failed (exit code 7):\nerror: no https://h/a.whl (no), pip"
    )


def test_a_real_uv_runs_without_reading_a_configuration(tmp_path: Path) -> None:
    (tmp_path / "uv.toml").write_text("this is not TOML")
    assert re.match(r"uv \d", find_uv().run("--version", folder=tmp_path))
