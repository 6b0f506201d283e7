from __future__ import annotations

import json
from pathlib import Path

import pytest

from kinetic_images.registry.addresses import Addresses, shown


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("docker.io", "https://registry-1.docker.io"),
        ("ghcr.io", "https://ghcr.io"),
        ("10.0.0.1:5000", "https://10.0.0.1:5000"),
        ("localhost", "http://localhost"),
        ("localhost:5000", "http://localhost:5000"),
        ("127.0.0.1:5000", "http://127.0.0.1:5000"),
        ("127.9.9.9", "http://127.9.9.9"),
        ("[::1]:5000", "http://[::1]:5000"),
        ("localhost.evil.com", "https://localhost.evil.com"),
        ("128.0.0.1", "https://128.0.0.1"),
    ],
)
def test_only_this_machine_is_reached_without_encryption(host: str, expected: str) -> None:
    assert Addresses({}, files=[]).base(host) == expected


def test_hosts_that_the_docker_daemon_calls_insecure_are_reached_without_encryption(
    tmp_path: Path,
) -> None:
    file = tmp_path / ".config" / "docker" / "daemon.json"
    file.parent.mkdir(parents=True)
    names = ["Registry.corp:5000", "10.1.0.0/16", "http://plain.corp", "10.9.9.9"]
    file.write_text(json.dumps({"insecure-registries": names}))
    addresses = Addresses({"HOME": str(tmp_path)})

    plain = ["registry.corp:5000", "10.1.2.3:5000", "plain.corp"]
    assert [host for host in plain if not addresses.is_plain(host)] == []
    secure = ["registry.corp", "10.2.0.1", "10.9.9.9:5000", "other.corp:5000"]
    assert [host for host in secure if addresses.is_plain(host)] == []


@pytest.mark.parametrize("content", ["{", "[]", '{"insecure-registries": "x"}', "[" * 100_000])
def test_a_broken_configuration_of_the_daemon_permits_nothing(tmp_path: Path, content: str) -> None:
    (tmp_path / "daemon.json").write_text(content)

    addresses = Addresses({}, files=[tmp_path / "daemon.json", tmp_path / "none"])
    assert not addresses.is_plain("x")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://storage.googleapis.com/x", True),
        ("http://storage.googleapis.com/x", False),
        ("http://127.0.0.1:1/x", True),
        ("http://127.0.0.1@evil.com/x", False),
        ("ftp://127.0.0.1/x", False),
        ("file:///etc/passwd", False),
        ("https://h:port/", False),
        ("https://[::1/", False),
        ("https:///x", False),
        ("", False),
    ],
)
def test_a_response_may_lead_to_encrypted_addresses_only(url: str, expected: bool) -> None:
    assert Addresses({}, files=[]).permits(url) is expected


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://me:hunter2@h.io:1/a/b?signature=hunter2#x", "https://h.io:1/a/b"),
        ("https://me:hunter2@h.io?hunter2", "https://h.io"),
        ("me:hunter2@h.io/a", "h.io/a"),
        ("http://[::1", "http://[::1"),
        ("", ""),
    ],
)
def test_an_address_is_shown_without_secrets(url: str, expected: str) -> None:
    assert shown(url) == expected
