"""A folder with a Dockerfile is sent as docker would send it."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from kinetic_images.builders.dockerfile.folder_context import folder_context, ignored_by
from kinetic_images.errors import BuildInputError


def a_folder(root: Path, **files: str) -> Path:
    """Make files below *root*; `__` in a name stands for a slash."""
    for name, text in {"Dockerfile": "FROM scratch\n", **files}.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root / "Dockerfile"


@pytest.mark.parametrize(
    ("lines", "path", "expected"),
    [
        (["*.pyc"], "a.pyc", True),
        (["*.pyc"], "x/a.pyc", False),
        (["**/*.pyc"], "x/y/a.pyc", True),
        (["**/*.pyc"], "a.pyc", True),
        (["x"], "x/y/z", True),
        (["/x/"], "x/y", True),
        (["x", "!x/y"], "x/y", False),
        (["x", "!x/y", "x/y/z"], "x/y/z", True),
        (["# x", "", "  "], "x", False),
        (["x?[ab]"], "x1a", True),
        (["x?[^ab]"], "x1a", False),
        (["a.c"], "abc", False),
        ([r"\!x"], "!x", True),
        (["./x/../y"], "y", True),
        (["**"], "any/thing", True),
        (["**b"], "ab", False),
        (["**b"], "x/y/b", True),
        (["a**"], "ab/c", True),
        (["a**/c"], "ab/c", True),
        (["*", "!**b/c"], "ab/c", True),
    ],
)
def test_patterns_are_those_of_docker(lines: list[str], path: str, expected: bool) -> None:
    assert ignored_by(lines)(path) is expected


def test_a_folder_is_sent_with_links_and_modes_and_without_ignored_files(tmp_path: Path) -> None:
    ignore = {".dockerignore": "secret\nDockerfile\n"}
    dockerfile = a_folder(tmp_path, src__run="x", secret="no", **ignore)
    (tmp_path / "src/run").chmod(0o755)
    (tmp_path / "link").symlink_to("src")
    (tmp_path / "empty").mkdir()

    context = folder_context(dockerfile)

    stream = io.BytesIO()
    context.write_archive(stream, compressed=False)
    stream.seek(0)
    with tarfile.open(fileobj=stream) as archive:
        found = {each.name: (each.mode, each.linkname) for each in archive if each.name != "."}
    assert found == {
        ".dockerignore": (0o644, ""),
        "Dockerfile": (0o644, ""),
        "link": (0o644, "src"),
        "src": (0o755, ""),
        "src/run": (0o755, ""),
        "empty": (0o755, ""),
    }


def test_a_dockerfile_may_have_another_name_and_its_own_ignore_file(tmp_path: Path) -> None:
    files = {
        "gpu.Dockerfile": "FROM x\n",
        "gpu.Dockerfile.dockerignore": "b\ngpu*\n",
    }
    a_folder(tmp_path, a="1", b="2", **files, **{".dockerignore": "a\n"})
    (tmp_path / "elsewhere").mkdir()  # It may be a link to a file elsewhere.
    (tmp_path / "gpu.Dockerfile").rename(tmp_path / "elsewhere/real")
    (tmp_path / "gpu.Dockerfile").symlink_to(tmp_path / "elsewhere/real")

    context = folder_context(tmp_path / "gpu.Dockerfile")

    assert context.dockerfile == "gpu.Dockerfile"
    assert context.files[context.dockerfile].content == tmp_path / "gpu.Dockerfile"
    assert "gpu.Dockerfile.dockerignore" in context.files  # Cloud Build reads it again.
    assert "a" in context.files
    assert "b" not in context.files


def test_a_dockerfile_that_is_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BuildInputError, match="There is no Dockerfile"):
        folder_context(tmp_path / "Dockerfile")
