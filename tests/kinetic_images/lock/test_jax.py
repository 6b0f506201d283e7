"""The accelerator's JAX replaces that of the developer's machine, at the version that was asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from kinetic_images.dependencies import Dependencies, read_dependencies
from kinetic_images.lock.jax import AcceleratorJax, with_accelerator_jax
from kinetic_images.targets import Category


def dependencies(folder: Path, *lines: str) -> Dependencies:
    path = folder / "requirements.txt"
    path.write_text("\n".join(lines))
    return read_dependencies(path, environ={})


def replaced(
    folder: Path, *lines: str, category: Category = "tpu", python: str = "3.11"
) -> AcceleratorJax:
    return with_accelerator_jax(dependencies(folder, *lines), category, python)


@pytest.mark.parametrize(
    ("category", "python", "expected"),
    [
        ("cpu", "3.11", "jax==0.10.2"),
        ("gpu", "3.12", "jax[cuda12]==0.12.0.1"),
        ("tpu", "3.14", "jax[tpu]==0.12.0.1"),
        ("tpu", "3.99", "jax[tpu]"),
    ],
)
def test_each_accelerator_gets_its_own(
    tmp_path: Path, category: Category, python: str, expected: str
) -> None:
    found = replaced(tmp_path, "numpy", category=category, python=python)
    assert (*found.preferences, *found.additions) == (expected,)
    assert found.notes == ()
    if category != "tpu":  # A libtpu is of no use.
        found = replaced(tmp_path, "libtpu==0.0.1", category=category, python=python)
        assert (found.preferences, found.additions) == ((expected,), ())


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["jax"], ["jax[tpu]==0.10.2"]),
        (["jax[cpu]>=0.4"], ["jax[tpu]==0.10.2"]),
        (["jax", "jaxlib>=0.4"], ["jax[tpu]==0.10.2"]),
        (["jax==0.7.2"], ["jax[tpu]==0.7.2"]),
        (["jax[cuda12-pip,xprof]<0.8", "jaxlib"], ["jax[tpu,xprof]<0.8"]),
        (["jaxlib<0.8"], ["jax[tpu]", "jaxlib<0.8"]),
        (["jax==0.7.2", "jaxlib==0.7.1", "libtpu==0.0.20"], ["jax[tpu]==0.7.2", "jaxlib==0.7.1", "libtpu==0.0.20"]),
        (["libtpu-nightly==1"], ["jax[tpu]==0.10.2"]),
        (["jax @ https://h/jax-1-py3-none-any.whl"], ["jax[tpu] @ https://h/jax-1-py3-none-any.whl"]),
    ],
)  # fmt: skip
def test_a_version_that_the_user_named_is_kept(
    tmp_path: Path, lines: list[str], expected: list[str]
) -> None:
    found = replaced(tmp_path, *lines, "numpy")
    assert [*found.preferences, *found.additions] == expected
    assert [line.name for line in found.dependencies.requirements] == ["numpy"]


def test_a_gpu_gets_the_cuda_that_the_user_named(tmp_path: Path) -> None:
    for line, expected in (
        ("jax[cuda13]", "jax[cuda13]==0.10.2"),
        ("jax[cuda13-local,xprof]==0.9", "jax[cuda13,xprof]==0.9"),
        ("jax[tpu]", "jax[cuda12]==0.10.2"),
    ):
        found = replaced(tmp_path, line, category="gpu")
        assert (*found.preferences, *found.additions) == (expected,)


def test_one_note_names_the_lines_and_the_mark_that_keeps_them(tmp_path: Path) -> None:
    found = replaced(tmp_path, "numpy", "jax", "libtpu")
    (note,) = found.notes
    for text in ("requirements.txt:2", "requirements.txt:3", "jax[tpu]==0.10.2", "# kn:keep"):
        assert text in note


def test_a_marked_line_is_left_alone(tmp_path: Path) -> None:
    found = replaced(tmp_path, "jax==0.5 # kn:keep", "jaxlib==0.5")
    assert [line.canonical for line in found.dependencies.requirements] == ["jax==0.5 # kn:keep"]
    assert found.additions == ("jaxlib==0.5",)
    assert len(found.notes) == 1


@pytest.mark.parametrize(
    ("array", "kept"),
    [
        ('["jax==0.5", "numpy"]  # kn:keep', True),
        ("[\n  'jax==0.5',  # kn:keep\n  'numpy',\n]", True),
        ('[\n  "numpy",\n  "jax==0.5"  # "why"? kn:keep\n]', True),
        ('[\n  "numpy",  # kn:keep\n  "jax==0.5",\n]', False),
        ('[\n  # "jax==0.5",  # kn:keep\n  "jax==0.5",\n]', False),
        ('[\n  "jax==0.5", "numpy ; sys_platform != \'# kn:keep \'",\n]', False),
    ],
)
def test_a_mark_counts_in_a_pyproject_too(tmp_path: Path, array: str, kept: bool) -> None:
    (tmp_path / "pyproject.toml").write_text(f'[project]\nname = "mine"\ndependencies = {array}\n')
    found = with_accelerator_jax(read_dependencies(tmp_path / "pyproject.toml"), "tpu", "3.11")
    names = [line.name for line in found.dependencies.requirements]
    assert ("jax" in names, found.notes == ()) == (kept, kept)


def test_the_note_has_no_credentials(tmp_path: Path) -> None:
    found = replaced(
        tmp_path, "jax @ https://me:s3cret@h.example/jax-1-py3-none-any.whl?sig=s3cret"
    )
    assert "s3cret" in found.additions[0]
    assert "s3cret" not in found.notes[0]
