"""The token of a pod goes to Google's own hosts, and to them by https only."""

from __future__ import annotations

from pathlib import Path

import pytest

from kinetic_runner.child.installer import _google_hosts


@pytest.mark.parametrize(
    ("urls", "expected"),
    [
        (["https://us-python.pkg.dev/a.whl"], {"us-python.pkg.dev"}),
        (["https://us-python.pkg.dev.evil.example/a.whl"], set()),
        (["http://us-python.pkg.dev/a.whl"], set()),
        (["https://us-python.pkg.dev/a.whl", "http://us-python.pkg.dev:8080/b.whl"], set()),
    ],
)
def test_hosts_that_get_the_token_are_googles_and_have_no_http_address(
    tmp_path: Path, urls: list[str], expected: set[str]
) -> None:
    rows = [f'[[packages]]\nwheels = [{{ url = "{url}" }}]\n' for url in urls]
    (tmp_path / "pylock.toml").write_text("".join(rows))

    assert _google_hosts(tmp_path / "pylock.toml") == expected
