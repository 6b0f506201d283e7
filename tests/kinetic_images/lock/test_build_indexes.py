"""Source archives are built with the requirements of the project's own indexes."""

from __future__ import annotations

from pathlib import Path

import pytest

from kinetic_images.dependencies import read_dependencies
from kinetic_images.lock.build_indexes import build_indexes, index_addresses

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
