"""Declared credentials are found again by the addresses in a lock; builds get indexes without them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kinetic_images.dependencies import read_dependencies
from kinetic_images.lock.addresses import (
    build_indexes,
    full_addresses,
    index_addresses,
    is_google_index,
)


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


OWN = "https://own.example/simple"
MORE = "https://more.example/simple"
LINKS = "https://links.example/"
SETTINGS = f"""
index-strategy = "unsafe-best-match"
index = [
    {{name = "own", url = "{OWN}", default = true}}, {{name = "more", url = "{MORE}"}},
    {{name = "some", url = "https://some.example/", explicit = true}},
]
"""


@pytest.mark.parametrize(
    ("requirements", "uv", "environ", "expected"),
    [
        ("", "", {}, {}),
        (
            f"--index-url https://me:s3cret@own.example/simple\n--extra-index-url {MORE}\n--find-links {LINKS}\n--find-links ./here\n",
            "", {}, {"UV_DEFAULT_INDEX": OWN, "UV_INDEX": MORE, "UV_FIND_LINKS": LINKS},
        ),
        ("", SETTINGS, {}, {"UV_DEFAULT_INDEX": OWN, "UV_INDEX": MORE, "UV_INDEX_STRATEGY": "unsafe-best-match"}),
        ("", "", {"UV_DEFAULT_INDEX": OWN, "UV_INDEX": f"more={MORE} {LINKS}"}, {"UV_DEFAULT_INDEX": OWN, "UV_INDEX": f"{MORE} {LINKS}"}),
    ],
    ids=["none", "requirements", "uv.toml", "variables"],
)  # fmt: skip
def test_indexes_of_a_build_are_those_of_the_project_without_credentials(
    tmp_path: Path,
    requirements: str,
    uv: str,
    environ: dict[str, str],
    expected: dict[str, str],
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "requirements.txt").write_text(f"{requirements}six\n")
    (tmp_path / "uv.toml").write_text(uv)
    found = read_dependencies(
        tmp_path / "requirements.txt", environ={"HOME": str(tmp_path), **environ}
    )

    assert build_indexes(found) == expected
    assert (OWN in index_addresses(expected)) is bool(expected)
