"""Settings of uv are passed on, known to have no effect, or refused by file and key: never dropped."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kinetic_images.declared.toml_text import parsed_toml
from kinetic_images.declared.uv_settings import Settings, parse_uv_toml
from kinetic_images.errors import DependencyError, InstallError
from kinetic_images.uv import find_uv

FILE = "uv.toml"


def parsed(text: str, *, of_project: bool = True) -> Settings:
    return parse_uv_toml(text, FILE, "/srv/project", of_project=of_project)


@pytest.mark.parametrize(
    ("text", "line", "key"),
    [
        ("\nno-sources = true", 2, "no-sources"),
        ("no-sources-package = ['a']", 1, "no-sources-package"),
        ("[pip]\nno-deps = true", 2, "pip.no-deps"),
        ("[pip]\nextra = ['gpu']", 2, "pip.extra"),
        ("[pip]\nall-extras = true", 2, "pip.all-extras"),
        ("[pip]\ngroup = ['dev']", 2, "pip.group"),
        ("offline = true\nsource-of-packages = 'x'", 2, "source-of-packages"),
        ("[pip]\nindex = []", 2, "pip.index"),
        ("constraint-dependencies = 'a'", 1, "constraint-dependencies"),
        ("override-dependencies = [{ a = 1 }]", 1, "override-dependencies"),
        ("\n[[index]]\nname = 'a'", 2, "index"),
        ("index-url = 3", 1, "index-url"),
        ("find-links = 'x'", 1, "find-links"),
        ("[sources]\na = { index = 'b' }", 1, "sources"),
    ],
)
def test_what_is_not_supported_is_refused_by_file_line_and_key(
    text: str, line: int, key: str
) -> None:
    with pytest.raises(DependencyError) as caught:
        parsed(text)
    assert caught.value.message.startswith(f"{FILE}:{line}: ")
    assert key in caught.value.message
    assert caught.value.hint


def test_what_is_refused_only_if_it_is_on_is_not_refused_if_it_is_off() -> None:
    assert parsed("no-sources = false\n[pip]\nno-deps = false\nextra = []\n") == Settings()


def test_settings_about_locks_publishing_and_development_have_no_effect() -> None:
    text = "cache-dir = '/c'\npublish-url = 'https://h'\n[pip]\noutput-file = 'x'\nsystem = true\n"
    assert parsed(text) == Settings()


def is_unknown(text: str) -> bool:
    try:
        parsed(text)
    except DependencyError as error:
        return "is not a setting of uv" in error.message
    return False


@pytest.mark.parametrize("prefix", ["", "[pip]\n"])
def test_each_setting_of_this_uv_is_known(prefix: str, tmp_path: Path) -> None:
    settings = tmp_path / "uv.toml"
    settings.write_text(f"{prefix}no-such-setting = 1\n")
    with pytest.raises(InstallError) as caught:
        find_uv().run("pip", "list", settings=settings)
    _, _, listed = caught.value.output.partition("expected one of")
    names = re.findall(r"`([a-z-]+)`", listed)
    assert len(names) > 40
    assert [name for name in names if is_unknown(f"{prefix}{name} = []\n")] == []


def test_paths_are_relative_to_the_file_that_names_them() -> None:
    settings = parsed(
        "index-url = '../simple'\nextra-index-url = ['https://h/s', '/abs']\nfind-links = ['wheels']\n"
        "[[index]]\nurl = './flat'\nformat = 'flat'\n[pip]\nfind-links = ['more']\n"
    )
    assert settings.passed == {
        "index-url": "file:///srv/simple",
        "extra-index-url": ["https://h/s", "/abs"],
        "find-links": ["file:///srv/project/wheels"],
        "index": [{"url": "file:///srv/project/flat", "format": "flat"}],
        "pip": {"find-links": ["file:///srv/project/more"]},
    }


def test_of_a_user_only_where_packages_come_from_is_taken_and_the_rest_is_noted() -> None:
    text = (
        "index-url = 'https://h'\nprerelease = 'allow'\nkeyring-provider = 'subprocess'\n"
        "[pip]\nno-index = true\nresolution = 'lowest'\nrequire-hashes = true\n"
    )
    settings = parsed(text, of_project=False)
    assert settings.passed == {
        "index-url": "https://h",
        "keyring-provider": "subprocess",
        "pip": {"no-index": True},
    }
    assert settings.require_hashes is None
    assert [note.partition(" was ignored")[0] for note in settings.notes] == [
        f"{FILE}:2: prerelease",
        f"{FILE}:6: pip.resolution",
        f"{FILE}:7: pip.require-hashes",
    ]


def test_settings_of_a_project_go_over_those_of_the_user_and_lists_are_joined() -> None:
    own = parsed("no-index = true\nfind-links = ['a']\n[pip]\nindex-url = 'https://a'\n")
    others = parsed("no-index = false\nfind-links = ['b']\noffline = true\n", of_project=False)
    assert own.over(others).passed == {
        "no-index": True,
        "find-links": ["file:///srv/project/a", "file:///srv/project/b"],
        "offline": True,
        "pip": {"index-url": "https://a"},
    }


@pytest.mark.parametrize(
    "text",
    [
        "index-url = 'https://h'",
        "[[index]]\nurl = 'https://h'",
        "find-links = ['a']",
        "no-index = true",
        "prerelease = 'allow'",
        "exclude-newer = '2025-01-01'",
        "exclude-dependencies = ['a']",
        "[pip]\nresolution = 'lowest'",
    ],
)
def test_what_decides_is_digested(text: str) -> None:
    assert parsed(text).digested != parsed("").digested


def test_credentials_and_means_of_transport_are_not_digested() -> None:
    with_password = (
        "[[index]]\nname = 'a'\nurl = 'https://me:secret@h'\n[pip]\nlink-mode = 'copy'\n"
    )
    assert "secret" not in str(parsed(with_password).digested)
    plain = parsed(
        "http-proxy = 'http://me:pw@p'\noffline = true\n[[index]]\nname = 'a'\nurl = 'https://h'\n"
    )
    assert {"pip": {}} | plain.digested == parsed(with_password).digested


def test_text_that_is_written_is_what_is_read(tmp_path: Path) -> None:
    from kinetic_images.declared.toml_text import toml_text

    values = {
        "a b": 'quote " back \\ tab \t nul \x00 del \x7f é 🙂 \u2028',
        "list": [1, 2.5, True, {"x.y": "z", "empty": {}}, []],
        "table": {"config-settings": {"k": ["v"]}},
    }
    assert parsed_toml(toml_text(values), "x") == values
