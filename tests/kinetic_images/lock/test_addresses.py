"""Declared credentials are found again by the addresses in a lock."""

from __future__ import annotations

from pathlib import Path

import pytest

from kinetic_images.dependencies import read_dependencies
from kinetic_images.lock.addresses import full_addresses, is_google_index


@pytest.mark.parametrize(
    ("declared", "kept", "full"),
    [
        ("https://me:pw@h/a.whl", "https://h/a.whl", "https://me:pw@h/a.whl"),
        ("https://h/a.whl?t=pw#sha256=1", "https://h/a.whl", "https://h/a.whl?t=pw"),
        ("git+https://me:pw@h/r@v1#subdirectory=x", "git+https://h/r", "git+https://me:pw@h/r"),
        ("git+https://me:pw@h/r", "git+https://h/r", "git+https://me:pw@h/r"),
        ("git+ssh://me:pw@h/r@main", "git+ssh://h/r", "git+ssh://me:pw@h/r"),
        *(
            (address, "", "")
            for address in ("https://h/a.whl", "git+https://h/r@v1", "git+ssh://git@h/r@v1")
        ),
    ],
)
def test_an_address_with_a_secret_is_found_by_the_kept_one(
    tmp_path: Path, declared: str, kept: str, full: str
) -> None:
    (tmp_path / "requirements.txt").write_text(f"alpha @ {declared}\nbeta\n")
    found = full_addresses(read_dependencies(tmp_path / "requirements.txt", environ={}))
    assert found == ({kept: full} if full else {})


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("https://us-python.pkg.dev/p/r/simple/", True),
        ("https://me:key@europe-west4-python.pkg.dev/p/r/a.whl", True),
        ("https://US-python.pkg.dev:443/p/r/simple/", True),
        ("http://us-python.pkg.dev/p/r/simple/", False),
        ("https://us-python.pkg.dev:8443/p/r/simple/", False),
        ("https://us-python.pkg.dev.attacker.example/p/", False),
        ("https://attacker.example/us-python.pkg.dev/", False),
        ("git+https://us-python.pkg.dev/p", False),
    ],
)
def test_only_its_hosts_over_an_encrypted_connection_count(address: str, expected: bool) -> None:
    assert is_google_index(address) is expected
