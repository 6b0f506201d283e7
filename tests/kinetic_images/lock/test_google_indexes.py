"""Tokens are sent to Python repositories of Artifact Registry, and to nothing that only looks like one."""

from __future__ import annotations

import pytest

from kinetic_images.lock.addresses import is_google_index


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("https://us-python.pkg.dev/p/r/simple/", True),
        ("https://me:key@europe-west4-python.pkg.dev/p/r/a.whl", True),
        ("https://US-python.pkg.dev:443/p/r/simple/", True),
        ("https://us-python.pkg.dev:port/p/r/simple/", False),
        ("http://us-python.pkg.dev/p/r/simple/", False),
        ("https://us-python.pkg.dev:8443/p/r/simple/", False),
        ("https://us-docker.pkg.dev/p/r/simple/", False),
        ("https://us-python.pkg.dev.attacker.example/p/", False),
        ("https://attacker.example/us-python.pkg.dev/", False),
        ("git+https://us-python.pkg.dev/p", False),
        ("us-python.pkg.dev", False),
    ],
)
def test_only_its_hosts_over_an_encrypted_connection_count(address: str, expected: bool) -> None:
    assert is_google_index(address) is expected
