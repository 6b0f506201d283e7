from __future__ import annotations

import base64
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from kinetic_images.errors import RegistryError, RegistryLoginError, RegistryUnavailableError
from kinetic_images.registry.credentials import Credentials, Login, google_login
from kinetic_payload.threads import Stopped, stoppable

HUB = "https://index.docker.io/v1/"
Write = Callable[[object], Path]


def auth(user: str, password: str) -> dict[str, str]:
    return {"auth": base64.b64encode(f"{user}:{password}".encode()).decode()}


@pytest.fixture
def helper(environ: dict[str, str], tmp_path: Path) -> Callable[[str, str], None]:
    """Return what makes a credential helper of a shell script, and puts it on the PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    environ["PATH"] = f"{folder}:{environ['PATH']}"

    def write(name: str, script: str) -> None:
        path = folder / f"docker-credential-{name}"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    return write


def without_google() -> Login | None:
    raise AssertionError("Google was asked")


def credentials(environ: Mapping[str, str], **more: Any) -> Credentials:
    return Credentials(environ, google=more.pop("google", without_google), **more)


@pytest.mark.parametrize(
    ("host", "key"),
    [
        ("ghcr.io", "ghcr.io"),
        ("ghcr.io", "https://ghcr.io"),
        ("ghcr.io", "https://ghcr.io/v2/"),
        ("127.0.0.1:5000", "127.0.0.1:5000"),
        ("docker.io", HUB),
        ("docker.io", "docker.io"),
        ("docker.io", "index.docker.io"),
    ],
)
def test_a_login_of_docker_is_found_by_any_form_of_its_host(
    environ: dict[str, str], write_docker_config: Write, host: str, key: str
) -> None:
    write_docker_config({"auths": {"other.io": auth("x", "y"), key: auth("me", "se:cret")}})
    found = credentials(environ).login(host)

    assert (found.username, found.password) == ("me", "se:cret")
    assert found.source.endswith(".docker/config.json")
    assert "cret" not in repr(found)
    assert credentials(environ).login("another.io").anonymous
    assert credentials({}).login(host).anonymous
    folder = Path(environ["HOME"], ".docker")
    assert not credentials({"DOCKER_CONFIG": str(folder)}).login(host).anonymous


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"identitytoken": "i", **auth("me", "")}, Login(identity_token="i")),
        ({}, Login()),
        ({"auth": ""}, Login()),
        ("odd", Login()),
    ],
)
def test_all_forms_of_an_entry_are_read(
    environ: dict[str, str], write_docker_config: Write, entry: object, expected: Login
) -> None:
    write_docker_config({"auths": {"h.io": entry}})
    found = credentials(environ).login("h.io")

    assert (found.username, found.password) == (expected.username, expected.password)
    assert (found.identity_token, found.token) == (expected.identity_token, expected.token)


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        '{"auths": {"h.io": {"auth": "hunter2"}}}',
    ],
)
def test_a_malformed_configuration_is_an_error_that_quotes_nothing_of_it(
    environ: dict[str, str], write_docker_config: Write, content: str
) -> None:
    path = write_docker_config({})
    path.write_text(content)

    with pytest.raises(RegistryError) as caught:
        credentials(environ).login("h.io")
    assert str(path) in str(caught.value)
    assert "hunter2" not in str(caught.value)


ANSWER = """read server; printf '{"ServerURL":"%s","Username":"me","Secret":"%s"}' "$server" "$server" """


def test_the_helper_of_a_host_precedes_the_one_for_all_and_the_file(
    environ: dict[str, str], write_docker_config: Write, helper: Callable[[str, str], None]
) -> None:
    helper("own", ANSWER)
    helper("all", """echo '{"Username":"<token>","Secret":"i"}'""")
    config = {
        "credHelpers": {"h.io": "own"},
        "credsStore": "all",
        "auths": {"h.io": auth("f", "f")},
    }
    write_docker_config(config)

    assert credentials(environ).login("h.io").password == "h.io"
    assert credentials(environ).login("other.io").identity_token == "i"
    write_docker_config({"credHelpers": {"docker.io": "own"}})
    assert credentials(environ).login("docker.io").password == HUB


def test_a_helper_without_a_login_leaves_the_choice_to_the_next_source(
    environ: dict[str, str], write_docker_config: Write, helper: Callable[[str, str], None]
) -> None:
    helper("all", "echo 'credentials not found in native keychain'; exit 1")
    write_docker_config({"credsStore": "all", "auths": {"h.io": auth("me", "file")}})

    assert credentials(environ).login("h.io").password == "file"
    assert credentials(environ).login("other.io").anonymous


@pytest.mark.parametrize(
    ("script", "cause"),
    [
        (None, "cannot be run (No such file"),
        ("echo hunter2; echo hunter2 >&2; exit 3", "exit code 3"),
        ("echo hunter2", "its output is not"),
        ("""echo '["hunter2"]'""", "its output is not"),
        ("""echo '{"Username": "me", "Secret": 7}'""", "its output is not"),
        ("sleep 60 & sleep 60", "did not end within 0.3 s"),
        ("exec >&-; sleep 60", "did not end within 0.3 s"),
    ],
)
def test_a_broken_helper_is_named_and_its_output_is_not_shown(
    environ: dict[str, str],
    write_docker_config: Write,
    helper: Callable[[str, str], None],
    script: str | None,
    cause: str,
) -> None:
    if script is not None:
        helper("broken", script)
    for name in ("../../x", "x\0"):  # A helper is no path.
        write_docker_config({"credsStore": name})
        with pytest.raises(RegistryLoginError, match="contains a"):
            credentials(environ).login("h.io")
    write_docker_config({"credHelpers": {"h.io": "broken"}})

    with pytest.raises(RegistryLoginError) as caught:
        credentials(environ, helper_limit=0.3).login("h.io")
    assert "docker-credential-broken" in caught.value.message
    assert cause in caught.value.message
    assert "h.io" in (caught.value.hint or "")
    assert "hunter2" not in str(caught.value)


def test_a_helper_that_waits_ends_if_the_login_is_stopped(
    environ: dict[str, str], write_docker_config: Write, helper: Callable[[str, str], None]
) -> None:
    helper("slow", "sleep 60")
    write_docker_config({"credsStore": "slow"})
    stop = threading.Event()
    threading.Timer(0.2, stop.set).start()

    with stoppable(stop.is_set), pytest.raises(Stopped):
        credentials(environ).login("h.io")


def test_google_is_asked_for_its_own_registries_only_and_after_docker(
    environ: dict[str, str], write_docker_config: Write
) -> None:
    asked: list[str] = []

    def google() -> Login | None:
        asked.append("google")
        return Login(token="t")

    found = credentials(environ, google=google)
    assert found.login("us-docker.pkg.dev").token == "t"
    assert found.login("ghcr.io").anonymous
    write_docker_config({"auths": {"us-docker.pkg.dev": auth("_json_key", "k")}})
    assert found.login("us-docker.pkg.dev").password == "k"
    assert asked == ["google"]


VARIABLE = "GOOGLE_APPLICATION_CREDENTIALS"


def test_the_key_file_that_the_environment_names_gives_tokens(tmp_path: Path) -> None:
    # Siblings of this package, which are not there when its tests run alone.
    pytest.importorskip("cryptography")
    identity = pytest.importorskip("kinetic_servers.gke.google_identity")

    with identity.GoogleIdentity(tmp_path) as google:
        environ = {VARIABLE: str(google.file)}
        first, second = google_login(environ), google_login(environ)

        assert first is not None
        assert second is not None
        assert [first.token, second.token] == google.issued
        assert first.renew_at is not None
        assert 3000 < first.renew_at - time.time() < 3600
        assert first.token not in repr(first)
        google.revoke()
        with pytest.raises(RegistryLoginError, match="Invalid JWT Signature"):
            google_login(environ)
    with pytest.raises(RegistryUnavailableError, match="did not respond"):
        google_login(environ)


def test_a_key_file_that_cannot_be_used_is_an_error(tmp_path: Path) -> None:
    for name, content in (("none", None), ("broken", "{"), ("other", "{}")):
        if content is not None:
            (tmp_path / name).write_text(content)
        with pytest.raises(RegistryLoginError) as caught:
            google_login({VARIABLE: str(tmp_path / name)})
        assert VARIABLE in (caught.value.hint or "")
        assert "gcloud auth application-default login" in (caught.value.hint or "")


def test_without_credentials_on_this_machine_there_is_no_login(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")

    assert google_login({}) is None
