"""The metadata of a script is found as PEP 723 says, with the lines of the script."""

from __future__ import annotations

from pathlib import Path

import pytest

from kinetic_images.dependencies import Dependencies, find_dependencies
from kinetic_images.errors import DependencyError

BLOCK = (
    '# /// script\n# requires-python = ">=3.11"\n# dependencies = [\n#   "six",\n#\n# ]\n# ///\n'
)
SETTING = BLOCK.replace("# ]\n", '# ]\n# [tool.uv]\n# prerelease = "allow"\n')


def found(folder: Path, text: str, **environ: str) -> Dependencies:
    script = folder / "train"
    script.write_bytes(text.encode("latin-1"))
    (folder / "requirements.txt").write_text("numpy\n")
    return find_dependencies(script, environ={"HOME": "/nowhere", **environ})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"#!uv\n{BLOCK}import x\n".replace("\n", "\r\n"), "train:5 six"),
        (f"# /// other\n# a = 1\n# ///\n\nx = 'é'\n{BLOCK}", "train:9 six"),
        (BLOCK.replace("# ///\n", ""), "requirements.txt:1 numpy"),
    ],
)
def test_a_block_takes_the_place_of_the_project(tmp_path: Path, text: str, expected: str) -> None:
    read = found(tmp_path, text)
    assert [f"{one.place} {one.line}" for one in read.requirements] == [expected]
    assert read.requires_python == (">=3.11" if "train" in expected else None)


def test_what_is_ambiguous_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DependencyError, match="2 blocks"):
        found(tmp_path, f"{BLOCK}\n{BLOCK}")
    with pytest.raises(DependencyError, match="UV_NO_CONFIG"):
        found(tmp_path, SETTING, UV_NO_CONFIG="1")
    (tmp_path / "uv.toml").write_text("exclude-newer = '2026-01-01'\n")
    with pytest.raises(DependencyError, match=r"train cannot be combined with .*/uv\.toml"):
        found(tmp_path, SETTING)
