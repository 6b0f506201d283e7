"""Output of uv about an index leads to the place that names it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kinetic_images.dependencies import read_dependencies
from kinetic_images.lock.resolve import index_failure

AWAY = """error: Request failed after 3 retries in 11.6s
  cause: Failed to fetch: `https://index.test/simple/six/`
  cause: error sending request for url (https://index.test/simple/six/)
  cause: dns error
"""
REFUSED = """  × No solution found when resolving dependencies:
hint: An index URL (https://index.test/simple) could not be queried due to a lack of valid authentication
credentials (401 Unauthorized).
"""


@pytest.mark.parametrize(
    ("requirements", "project", "variables", "place"),
    [
        ("--index-url https://me:secret@index.test/simple\nsix\n", "", {}, "requirements.txt:1: --i"),
        ("six\n", "", {"UV_INDEX": "ours=https://me:secret@index.test/simple"}, "(UV_INDEX)"),
        (
            "",
            "[project]\nname = 'p'\nversion = '1'\ndependencies = ['six']\n"
            "[[tool.uv.index]]\nname = 'ours'\nurl = 'https://me:secret@index.test/simple'\n",
            {},
            "[[tool.uv.index]] ours",
        ),
    ],
)  # fmt: skip
def test_the_place_of_the_index_is_named_without_credentials(
    tmp_path: Path, requirements: str, project: str, variables: dict[str, str], place: str
) -> None:
    name = "requirements.txt" if requirements else "pyproject.toml"
    (tmp_path / name).write_text(requirements or project)
    dependencies = read_dependencies(tmp_path / name, environ=variables)

    refused, away = index_failure(REFUSED, dependencies), index_failure(AWAY, dependencies)

    for text, _ in (refused, away):
        assert place in text
        assert "https://index.test/simple" in text
        assert "secret" not in text
    assert "does not accept the login: 401 Unauthorized" in refused[0]
    assert "cannot be reached" in away[0]
    assert "~/.netrc" in refused[1]

    plain, _ = index_failure(REFUSED.replace("https:", "http:"), dependencies)
    assert plain.startswith("The package index http://index.test/ does not accept")


def test_other_failures_are_not_those_of_an_index(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("six==99\n")
    dependencies = read_dependencies(tmp_path / "requirements.txt", environ={})

    assert index_failure("Because there is no version of six==99 …", dependencies)[0] == ""
