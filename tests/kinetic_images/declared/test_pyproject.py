"""Declarations of a pyproject.toml are read by line, and others are noted."""

from __future__ import annotations

import pytest

from kinetic_images.declared.pyproject import Pyproject, parse_pyproject
from kinetic_images.errors import DependencyError
from kinetic_images.targets import Category

FILE = "pyproject.toml"
HEAD = '[project]\nname = "My_App"\ndependencies = ["six"]\n'
EXTRAS = '[project.optional-dependencies]\nall = ["my-app[gpu]"]\ngpu = ["cupy"]\ndocs = ["x"]\n'
MINE = '[project]\nname = "a"\ndependencies = ["mine>=1"]\n[tool.uv.sources]\nmine = '
GROUPS = """\
[project]
name = "a"
[project.optional-dependencies]
Fast_Math = ["numpy>=2"]
[dependency-groups]
Train_it = [{include-group = "base"}, "Gamma [x]  >= 1"]
base = [
    "JAX >= 0.4",  # kn:keep
]
loop = [{include-group = "loop"}]
[tool.kinetic]
"""


def parsed(text: str, *extras: str, category: Category = "cpu") -> Pyproject:
    return parse_pyproject(text, FILE, extras=extras, folder="/srv/project", category=category)


def rows(pyproject: Pyproject) -> list[str]:
    """Return requirements and paths with their lines."""
    return [
        *(f"{one.place.line} {one.canonical}" for one in pyproject.declared.requirements),
        *(f"{one.place.line} local" for one in pyproject.declared.local),
    ]


@pytest.mark.parametrize(
    ("text", "extras", "expected"),
    [
        ('[project]\nname = "a"\n# "Six>=1"\ndependencies = [\n  "x",\n  "Six>=1",\n]\n', [], ["5 x", "6 six>=1"]),
        (HEAD + EXTRAS, [], ["3 six"]),
        (HEAD + EXTRAS, ["all"], ["3 six", "6 cupy"]),
        (GROUPS + 'extras = ["fast-math"]\n', [], ["4 numpy>=2"]),
        (GROUPS + 'groups = ["train-it"]\n', [], ["8 jax>=0.4 # kn:keep", "6 gamma[x]>=1"]),
        (MINE + '{ git = "https://h/m.git", tag = "v1", subdirectory = "x" }', [], ["3 mine @ git+https://h/m.git@v1#subdirectory=x"]),
        (MINE + '{ path = "../mine" }', [], ["3 local"]),
        (MINE + "{ workspace = true }", [], ["3 local"]),
    ],
)  # fmt: skip
def test_requirements_have_their_lines_and_sources_take_the_place_of_names(
    text: str, extras: list[str], expected: list[str]
) -> None:
    assert rows(parsed(text, *extras)) == expected


def test_a_named_index_is_kept_with_the_requirement_that_must_come_from_it() -> None:
    index = '[[tool.uv.index]]\nname = "private"\nurl = "../simple"\nexplicit = true\n'
    found = parsed(f'{MINE}{{ index = "private" }}\n{index}')
    assert rows(found) == ['3 mine>=1 from {index = "private"}']
    assert found.indexes == ({"name": "private", "url": "file:///srv/simple", "explicit": True},)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[project]\nname="a"\ndynamic = ["version", "dependencies"]\n', f"{FILE}:3: the dependencies are dynamic"),
        ('[tool.poetry]\nname="a"\n[tool.poetry.dependencies]\nsix = "*"\n', f"{FILE}:1: dependencies in the tables of Poetry"),
        ('[project]\nname="a"\n[dependency-groups]\ndev = ["pytest"]\n', f"{FILE}:3: dependency groups are for development and were not installed: dev"),
        (HEAD + EXTRAS, f"{FILE}:4: optional dependencies were not installed: all, docs, gpu"),
    ],
)  # fmt: skip
def test_tables_that_are_not_read_are_noted(text: str, words: str) -> None:
    (note,) = parsed(text).declared.notes
    assert note.startswith(words)


def test_a_file_with_settings_of_tools_only_declares_nothing() -> None:
    assert not parsed("[tool.ruff]\nline-length = 100\n").declares
    assert parsed("[tool.poetry.dependencies]\nsix = '*'\n").declares


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[project\n", FILE),
        ('[project]\nname = "a"\ndependencies = "six"\n', FILE),
        ('[project]\ndependencies = ["=1"]\n', FILE),
        (GROUPS + "extras = ['nope']", r"^pyproject\.toml:12: 'nope' .* \[project\.optional-dependencies\]"),
        (GROUPS + "groups = ['nope']", r"^pyproject\.toml:12: 'nope' .* \[dependency-groups\]"),
        (GROUPS + "groups = 'train'", r"^pyproject\.toml:12: .* list of names"),
        (GROUPS + "extra = ['fast-math']", r"^pyproject\.toml:12: .* no key 'extra'"),
        (GROUPS + "[tool.kinetic.tpu]\ngroups = ['nope']", r"^pyproject\.toml:13: .*\[tool\.kinetic\.tpu\] is not"),
        (GROUPS + "tpu = 3", r"^pyproject\.toml:12: .* no key 'tpu'"),
        (GROUPS + "groups = ['loop']", r"^pyproject\.toml:5: .* cannot be read: .*loop"),
    ],
)  # fmt: skip
def test_a_declaration_that_cannot_be_meant_is_refused_by_line(text: str, message: str) -> None:
    with pytest.raises(DependencyError, match=message):
        parsed(text)
