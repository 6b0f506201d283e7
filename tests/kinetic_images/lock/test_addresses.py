"""Declared credentials are found again by the addresses in a lock."""

from __future__ import annotations

from pathlib import Path

import pytest

from kinetic_images.dependencies import read_dependencies
from kinetic_images.lock.addresses import full_addresses


@pytest.mark.parametrize(
    ("declared", "kept", "full"),
    [
        ("https://me:pw@h/a.whl", "https://h/a.whl", "https://me:pw@h/a.whl"),
        ("https://h/a.whl?t=pw#sha256=1", "https://h/a.whl", "https://h/a.whl?t=pw"),
        ("git+https://me:pw@h/r@v1#subdirectory=x", "git+https://h/r", "git+https://me:pw@h/r"),
        ("git+https://me:pw@h/r", "git+https://h/r", "git+https://me:pw@h/r"),
        ("git+ssh://me:pw@h/r@main", "git+ssh://h/r", "git+ssh://me:pw@h/r"),
    ],
)
def test_an_address_with_credentials(tmp_path: Path, declared: str, kept: str, full: str) -> None:
    (tmp_path / "requirements.txt").write_text(f"alpha @ {declared}\nbeta\n")
    found = full_addresses(read_dependencies(tmp_path / "requirements.txt", environ={}))
    assert found == {kept: full}


@pytest.mark.parametrize(
    "declared", ["https://h/a.whl", "git+https://h/r@v1", "git+ssh://git@h/r@v1"]
)
def test_an_address_without_secrets_needs_none(tmp_path: Path, declared: str) -> None:
    (tmp_path / "requirements.txt").write_text(f"alpha @ {declared}\n")
    assert full_addresses(read_dependencies(tmp_path / "requirements.txt", environ={})) == {}
