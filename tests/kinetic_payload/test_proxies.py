from __future__ import annotations

import pytest

from kinetic_payload.errors import InvalidRequestError
from kinetic_payload.proxies import proxy_headers, proxy_of_environment, proxy_url


def test_a_proxy_without_a_scheme_is_an_http_proxy() -> None:
    assert proxy_url("proxy.corp:3128", "x") == "http://proxy.corp:3128"
    assert proxy_url("https://proxy.corp", "x") == "https://proxy.corp"
    assert proxy_headers("http://proxy.corp:3128") == {}


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("socks5://user:secret@proxy.corp:1080", "'socks5://proxy.corp:1080', from the context 'c', is not"),
        ("http://user:secret@:80", "no valid host and port"),
        ("user:secret@proxy.corp:port", "'proxy.corp:port', from"),
        ("http://user:secret@[::1", "no valid host and port"),
    ],
)  # fmt: skip
def test_other_proxies_are_refused_without_their_password(text: str, cause: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        proxy_url(text, "the context 'c'")
    assert cause in caught.value.message
    assert "secret" not in str(caught.value)
    assert "http://HOST:PORT" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("excepted", "servers"),
    [
        (True, "10.1.2.3:6443 [fd00::1]:6443 192.168.0.7 api.corp in.wild ported:6443"),
        (True, "127.0.0.1:6443 [::1]:6443 localhost:6443"),
        (False, "11.1.2.3 10.corp.example corp wild 9.0.0.7 ported"),
    ],
)
def test_the_environments_proxy_is_not_used_for_its_exceptions(
    excepted: bool, servers: str
) -> None:
    given = {
        "HTTPS_PROXY": "proxy.corp:3128",
        "NO_PROXY": "10.0.0.0/8, fd00::/8,192.168.0.7,.corp,*.wild,0.7,,PORTED:6443",
    }

    found = {proxy_of_environment(f"https://{server}", given) for server in servers.split()}

    assert found == {None if excepted else "http://proxy.corp:3128"}


def test_a_given_environment_replaces_that_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("no_proxy", "NO_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("https_proxy", "of.process:1")

    assert proxy_of_environment("https://api.corp") == "http://of.process:1"
    given = {"HTTPS_PROXY": "upper:1", "https_proxy": "lower:1"}
    assert proxy_of_environment("https://api.corp", given) == "http://lower:1"
    assert proxy_of_environment("https://api.corp", {}) is None
