"""Credentials are found where uv finds them, and those of Artifact Registry also for uv."""

from __future__ import annotations

import base64
import netrc
import tomllib
from pathlib import Path
from urllib.parse import quote

import pytest

from kinetic_images.dependencies import Dependencies, read_dependencies
from kinetic_images.errors import DependencyError
from kinetic_images.lock.index_credentials import IndexCredentials
from kinetic_images.registry.credentials import Login

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


VARIABLES = {"UV_INDEX_MY_INDEX_USERNAME": "me", "UV_INDEX_MY_INDEX_PASSWORD": "s@cret"}
NAMED = '[[index]]\nname = "my-index"\nurl = "https://h.example/simple"\n'
TWO = "-i https://me:s%40cret@h.example/one/simple\n--extra-index-url https://you:other@h.example/two/simple"


@pytest.mark.parametrize(
    ("text", "uv", "environ", "address", "login"),
    [
        (TWO, "", {}, "https://h.example/one/files/a.whl", "me:s@cret"),
        (TWO, "", {}, "https://h.example/two/files/a.whl", "you:other"),
        (TWO, "", {}, "https://else.example/one/files/a.whl", None),
        ("alpha @ https://me:s%40cret@h.example/a.whl", "", {}, "https://h.example/a.whl", "me:s@cret"),
        ("", NAMED, VARIABLES, "https://h.example/files/a.whl", "me:s@cret"),
        ("", "", VARIABLES | {"UV_INDEX": "my-index=https://h.example/simple"}, "https://h.example/files/a.whl", "me:s@cret"),
        ("--index-url https://netrc.example/simple", "", {}, "https://netrc.example/a.whl", "me:of-netrc"),
    ],
)  # fmt: skip
def test_a_login_is_found_where_uv_finds_it(
    tmp_path: Path, text: str, uv: str, environ: dict[str, str], address: str, login: str | None
) -> None:
    (tmp_path / ".netrc").write_text("machine netrc.example login me password of-netrc\n")
    found = credentials(tmp_path, f"{text}\nalpha\n", uv=uv, **environ)
    assert found.authorization(address) == (login and basic(login))


def test_artifact_registry_is_logged_in_to_with_the_default_credentials_of_google(
    tmp_path: Path,
) -> None:
    own = tmp_path / ".local/share/uv/credentials/credentials.toml"
    own.parent.mkdir(parents=True)
    own.write_text('[[credential]]\nservice = "https://h.example/"\n')
    found = credentials(tmp_path, f"--extra-index-url {GOOGLE}\nalpha\n")
    assert found.authorization(f"{GOOGLE}a/a.whl") == basic("oauth2accesstoken:t0ken")
    (tmp_path / "uv").mkdir()
    variables = found.variables(tmp_path / "uv")
    assert variables == {"UV_CREDENTIALS_DIR": str(tmp_path / "uv")}
    path = tmp_path / "uv/credentials.toml"
    kept, added = tomllib.loads(path.read_text())["credential"]
    assert kept == {"service": "https://h.example/"}
    assert added["service"] == "https://us-python.pkg.dev/"
    assert (added["username"], added["password"]) == ("oauth2accesstoken", "t0ken")
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
    netrc = "machine other.example login you password secret\n"
    (tmp_path / ".netrc").write_text(f"{netrc}default login me password s3cret\n")
    found = credentials(tmp_path, f"--extra-index-url {GOOGLE}\nalpha\n")
    assert found.authorization("https://h.example/a.whl") == basic("me:s3cret")
    assert found.authorization(f"{GOOGLE}a.whl") == basic("oauth2accesstoken:t0ken")
    assert found.netrc(["https://files.example/a.whl"]) == ""
    assert Path(found.variables(tmp_path)["NETRC"]).read_text() == netrc


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


@pytest.mark.parametrize("is_named", [False, True], ids=["url", "name"])
@pytest.mark.parametrize(
    ("index", "file", "is_sent"),
    [
        ("https://h.example/simple", "http://h.example/a.whl", False),
        ("http://h.example/simple", "https://h.example/a.whl", False),
        ("http://h.example/simple", "http://h.example:80/a.whl", True),
        ("https://h.example/simple", "https://h.example:443/a.whl", True),
        ("https://h.example/simple", "https://h.example:8443/a.whl", False),
        ("https://h.example/simple", "https://h.example./a.whl", False),
        ("https://[::1]:8443/simple", "https://[::1]:8443/a.whl", True),
        ("https://h.example:port/simple", "https://h.example/a.whl", False),
    ],
)
def test_a_login_of_an_index_is_for_its_scheme_host_and_port(
    tmp_path: Path, index: str, file: str, is_sent: bool, is_named: bool
) -> None:
    if is_named:
        uv = f'[[index]]\nname = "mine"\nurl = "{index}"\n'
        login = {"UV_INDEX_MINE_USERNAME": "me", "UV_INDEX_MINE_PASSWORD": "s3@cret"}
        found = credentials(tmp_path, "alpha\n", uv=uv, **login)
    else:
        found = credentials(
            tmp_path, f"--index-url {index.replace('//', '//me:s3@cret@', 1)}\nalpha\n"
        )
    assert found.authorization(file) == (basic("me:s3@cret") if is_sent else None)


@pytest.mark.parametrize(
    "machine", ["machine h.example", "machine ::1", "machine [::1]", "default"]
)
@pytest.mark.parametrize(
    ("declared", "file", "is_sent"),
    [
        ("--index-url https://HOST/simple", "https://HOST:8443/a.whl", True),
        ("--index-url https://HOST/simple", "http://HOST/a.whl", False),
        ("--index-url http://HOST/simple", "http://HOST:80/a.whl", True),
        ("--index-url http://HOST/simple", "http://HOST:8080/a.whl", False),
        ("a @ http://HOST/a.whl", "http://HOST/a.whl", True),
    ],
)
def test_a_login_of_netrc_is_sent_by_plain_http_only_to_an_address_of_the_user(
    tmp_path: Path, machine: str, declared: str, file: str, is_sent: bool
) -> None:
    host = "[::1]" if "::1" in machine else "h.example"
    (tmp_path / ".netrc").write_text(f"{machine} login me password s3cret\n")
    found = credentials(tmp_path, declared.replace("HOST", host))
    sent = found.authorization(file.replace("HOST", host))
    assert sent == (basic("me:s3cret") if is_sent else None)


@pytest.mark.parametrize(
    ("declared", "host"),
    [
        ("--index-url https://me:s3cret@h.example/simple", "h.example"),
        ("--index-url https://me:s3cret@[::1]/simple", "[::1]"),
        ("--index-url https://of-netrc.example/simple", "of-netrc.example"),
        ("alpha @ https://me:s3cret@h.example/alpha.whl", "h.example"),
        (f"--index-url {GOOGLE}", "us-python.pkg.dev"),
    ],
)
@pytest.mark.parametrize("scheme", ["http", "git+http"])
def test_a_build_elsewhere_is_refused_if_it_would_send_a_login_by_plain_http(
    tmp_path: Path, declared: str, host: str, scheme: str
) -> None:
    (tmp_path / ".netrc").write_text("machine of-netrc.example login me password s3cret\n")
    found = credentials(tmp_path, f"{declared}\n")
    wanted, evil = f"https://{host}/alpha.whl", f"{scheme}://{host}/evil.whl"

    assert found.netrc([wanted]).startswith(f"machine {host} login ")
    with pytest.raises(DependencyError) as refused:
        found.netrc([f"{evil}?signature=x", wanted])
    assert f"{evil} is fetched by plain http" in refused.value.message


def test_a_build_elsewhere_gets_the_login_for_an_http_index_of_the_user(tmp_path: Path) -> None:
    index = "http://me:s3cret@h.example/simple"
    found = credentials(tmp_path, f"--index-url {index}\nalpha\n")
    assert found.netrc(["http://h.example/a.whl"]) == (
        "machine h.example login me password s3cret\n"
    )
    assert found.netrc(["http://h.example:8080/a.whl"]) == ""
