"""The indexes that settings of uv name are known, and a change of what decides changes the digest."""

from __future__ import annotations

from pathlib import Path

import pytest

from kinetic_images.declared.toml_text import parsed_toml, toml_text
from kinetic_images.declared.uv_files import find_settings
from kinetic_images.declared.uv_settings import Settings


def settings(folder: Path, text: str, **environ: str) -> Settings:
    folder.mkdir(exist_ok=True)
    (folder / "uv.toml").write_text(text)
    return find_settings(folder, {"HOME": str(folder), **environ})


def test_paths_of_indexes_are_relative_to_the_file_that_names_them(tmp_path: Path) -> None:
    found = settings(
        tmp_path,
        "index-url = '../simple'\nextra-index-url = ['https://h/s', '/abs']\nfind-links = ['wheels']\n"
        "[[index]]\nurl = './flat'\nformat = 'flat'\n[pip]\nfind-links = ['more']\n",
    )
    here = tmp_path.as_uri()
    assert [(index.address, dict(index.options)) for index in found.indexes] == [
        (f"{here}/flat", {"format": "flat"}),
        ("https://h/s", {}),
        ("/abs", {}),
        (f"{here}/wheels", {"format": "flat"}),
        (f"{tmp_path.parent.as_uri()}/simple", {"default": True}),
        (f"{here}/more", {"format": "flat"}),
    ]


def test_a_variable_in_a_requirement_of_the_settings_decides(tmp_path: Path) -> None:
    text = "override-dependencies = ['x @ https://${HOST}/x-1-py3-none-any.whl']\n"
    one, other = (settings(tmp_path, text, HOST=host).digested for host in ("a", "b"))
    assert one != other


def test_settings_of_the_user_follow_those_of_the_project(tmp_path: Path) -> None:
    (tmp_path / "uv").mkdir()
    (tmp_path / "uv" / "uv.toml").write_text("index-url = 'https://user'\nlink-mode = 'copy'\n")
    found = settings(
        tmp_path / "p",
        "index-url = 'https://project'\n[pip]\nlink-mode = 'symlink'\n",
        XDG_CONFIG_HOME=str(tmp_path),
        UV_INDEX="mine=https://variable",
    )
    assert [index.address for index in found.indexes] == [
        "https://variable",
        "https://project",
        "https://user",
    ]
    assert list(found.values("link-mode")) == ["symlink", "copy"]


@pytest.mark.parametrize(
    "text",
    [
        "no-index = true",
        "prerelease = 'allow'",
        "exclude-newer = '2025-01-01'",
        "a-setting-of-a-later-uv = 1",
        "[pip]\nresolution = 'lowest'",
    ],
)
def test_a_setting_that_may_decide_is_digested(tmp_path: Path, text: str) -> None:
    assert settings(tmp_path, text).digested != settings(tmp_path, "").digested


def test_credentials_and_settings_of_downloads_are_not_digested(tmp_path: Path) -> None:
    text = "[dependency-metadata]\nurl = 'https://me:secret@h'\n"
    assert "secret" not in str(settings(tmp_path, text).digested)
    text = "http-proxy = 'http://me:pw@p'\noffline = true\n[pip]\nlink-mode = 'copy'\n"
    assert settings(tmp_path, text).digested == []


def test_text_that_is_written_is_what_is_read() -> None:
    values = {
        "a b": 'quote " back \\ tab \t nul \x00 del \x7f é 🙂 \u2028',
        "list": [1, 2.5, True, {"x.y": "z", "empty": {}}, []],
        "table": {"config-settings": {"k": ["v"]}},
    }
    assert parsed_toml(toml_text(values), "x") == values
