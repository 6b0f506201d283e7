"""Credentials are found where uv finds them, and those of Artifact Registry also for uv."""

from __future__ import annotations

import base64
import netrc
from pathlib import Path
from urllib.parse import quote

import pytest

from kinetic_images.dependencies import Dependencies, read_dependencies
from kinetic_images.lock.index_credentials import IndexCredentials
from kinetic_images.registry.logins import Login

GOOGLE = "https://us-python.pkg.dev/p/r/simple/"


def basic(text: str) -> str:
    return f"Basic {base64.b64encode(text.encode()).decode()}"


def declared(folder: Path, text: str, *, uv: str = "", **environ: str) -> Dependencies:
    (folder / "requirements.txt").write_text(text)
    if uv:
        (folder / "uv.toml").write_text(uv)
    return read_dependencies(folder / "requirements.txt", environ={"HOME": str(folder), **environ})


def credentials(folder: Path, text: str, *, uv: str = "", **environ: str) -> IndexCredentials:
    return IndexCredentials(
        declared(folder, text, uv=uv, **environ),
        {"HOME": str(folder), **environ},
        google=lambda: Login(token="t0ken", source="a test"),
    )


def test_those_in_the_url_of_an_index_hold_for_its_files_on_the_same_host(tmp_path: Path) -> None:
    found = credentials(
        tmp_path,
        "--index-url https://me:s%40cret@h.example/one/simple\n"
        "--extra-index-url https://you:other@h.example/two/simple\nalpha\n",
    )
    assert found.authorization("https://h.example/one/files/a.whl") == basic("me:s@cret")
    assert found.authorization("https://h.example/two/files/a.whl") == basic("you:other")
    assert found.authorization("https://else.example/one/files/a.whl") is None


def test_those_of_an_address_hold_for_this_address(tmp_path: Path) -> None:
    found = credentials(tmp_path, "alpha @ https://me:secret@h.example/a.whl\n")
    assert found.authorization("https://h.example/a.whl") == basic("me:secret")


@pytest.mark.parametrize(
    ("uv", "environ"),
    [
        ('[[index]]\nname = "my-index"\nurl = "https://h.example/simple"\n', {}),
        ("", {"UV_INDEX": "my-index=https://h.example/simple"}),
    ],
)
def test_those_of_a_named_index_come_from_its_variables(
    tmp_path: Path, uv: str, environ: dict[str, str]
) -> None:
    variables = {
        "UV_INDEX_MY_INDEX_USERNAME": "me",
        "UV_INDEX_MY_INDEX_PASSWORD": "secret",
        **environ,
    }
    found = credentials(tmp_path, "alpha\n", uv=uv, **variables)
    assert found.authorization("https://h.example/files/a.whl") == basic("me:secret")


def test_those_of_a_host_come_from_netrc(tmp_path: Path) -> None:
    (tmp_path / ".netrc").write_text("machine h.example login me password secret\n")
    found = credentials(tmp_path, "--index-url https://h.example/simple\nalpha\n")
    assert found.authorization("https://h.example/files/a.whl") == basic("me:secret")


def test_artifact_registry_is_logged_in_to_with_the_default_credentials_of_google(
    tmp_path: Path,
) -> None:
    (tmp_path / ".netrc").write_text("machine h.example login me password secret\n")
    found = credentials(tmp_path, f"--extra-index-url {GOOGLE}\nalpha\n")
    assert found.authorization(f"{GOOGLE}a/a.whl") == basic("oauth2accesstoken:t0ken")
    path = Path(found.variables(tmp_path)["NETRC"])
    assert path.read_text().split() == [
        *["machine", "h.example", "login", "me", "password", "secret"],
        *["machine", "us-python.pkg.dev", "login", "oauth2accesstoken", "password", "t0ken"],
    ]
    assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "text",
    ["--index-url https://h.example/simple", f"--index-url {GOOGLE.replace('//', '//me:secret@')}"],
)
def test_google_is_not_asked_without_need(tmp_path: Path, text: str) -> None:
    def refuse() -> Login:
        raise AssertionError("asked")

    dependencies = declared(tmp_path, f"{text}\nalpha\n")
    found = IndexCredentials(dependencies, {"HOME": str(tmp_path)}, google=refuse)
    assert found.variables(tmp_path) == {}


def test_the_default_login_of_netrc_is_for_downloads_here_and_not_for_google(
    tmp_path: Path,
) -> None:
    (tmp_path / ".netrc").write_text("default login me password s3cret\n")
    found = credentials(tmp_path, f"--extra-index-url {GOOGLE}\nalpha\n")
    assert found.authorization("https://h.example/a.whl") == basic("me:s3cret")
    assert found.authorization(f"{GOOGLE}a.whl") == basic("oauth2accesstoken:t0ken")
    assert found.netrc(["https://files.example/a.whl"]) == ""
    assert "oauth2accesstoken" in Path(found.variables(tmp_path)["NETRC"]).read_text()


def test_a_build_elsewhere_gets_one_login_for_each_host(tmp_path: Path) -> None:
    (tmp_path / ".netrc").write_text("machine other.example login me password unrelated\n")
    found = credentials(
        tmp_path,
        f"--index-url https://me:secret@h.example:8443/simple\n--extra-index-url {GOOGLE}\n"
        "alpha @ git+https://you:t0k@git.example/alpha@v1\nbeta @ https://open.example/beta.whl\n",
    )
    assert found.netrc().splitlines() == [
        "machine git.example login you password t0k",
        "machine h.example login me password secret",
        "machine us-python.pkg.dev login oauth2accesstoken password t0ken",
    ]


@pytest.mark.parametrize(
    "text", ["s3cret", "", "two words", 'quo"ted', "back\\slash", "#1", "a\nb", "ä"]
)
def test_any_user_and_password_can_be_written_for_netrc(tmp_path: Path, text: str) -> None:
    word = quote(text)
    found = credentials(tmp_path, f"--index-url https://u{word}:{word}@h.example/simple\n")
    path = tmp_path / "written"
    path.write_text(found.netrc(), encoding="utf-8")
    assert netrc.netrc(str(path)).authenticators("h.example") == (f"u{text}", "", text)
