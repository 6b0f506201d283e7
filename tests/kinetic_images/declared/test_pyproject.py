"""What a pyproject.toml declares is taken, what is not read is noted."""

from __future__ import annotations

import pytest

from kinetic_images.declared.pyproject import Pyproject, parse_pyproject
from kinetic_images.errors import DependencyError

FILE = "pyproject.toml"


def parsed(text: str, *extras: str) -> Pyproject:
    return parse_pyproject(text.encode(), FILE, extras=extras)


def lines(pyproject: Pyproject) -> list[str]:
    return [one.canonical for one in pyproject.declared.requirements]


def test_project_dependencies_remember_their_lines() -> None:
    pyproject = parsed(
        '[project]\nname = "a"\n# "Six>=1" was not enough\ndependencies = [\n  "iniconfig",\n  "Six>=1",\n]\n'
    )
    assert lines(pyproject) == ["iniconfig", "six>=1"]
    assert [str(one.place) for one in pyproject.declared.requirements] == [f"{FILE}:5", f"{FILE}:6"]


def test_extras_are_taken_when_asked_for_also_through_each_other() -> None:
    text = (
        '[project]\nname = "My_App"\ndependencies = ["six"]\n[project.optional-dependencies]\n'
        'all = ["my-app[gpu]"]\ngpu = ["cupy"]\ndocs = ["sphinx"]\n'
    )
    assert lines(parsed(text)) == ["six"]
    assert lines(parsed(text, "all")) == ["six", "cupy"]
    assert parsed(text, "all").declared.notes == (
        f"{FILE}:4: optional dependencies were not installed: docs. "
        "To install some, name them in [tool.kinetic]: extras.",
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[project]\nname="a"\ndynamic = ["version", "dependencies"]\n', f"{FILE}:3: the dependencies are dynamic"),
        ('[tool.poetry]\nname="a"\n[tool.poetry.dependencies]\nsix = "*"\n', f"{FILE}:1: dependencies in the tables of Poetry"),
        ('[project]\nname="a"\n[dependency-groups]\ndev = ["pytest"]\n', f"{FILE}:3: dependency groups are for development and were not installed: dev"),
    ],
)  # fmt: skip
def test_tables_that_are_not_read_are_said(text: str, words: str) -> None:
    (note,) = parsed(text).declared.notes
    assert note.startswith(words)


def test_a_file_with_settings_of_tools_only_declares_nothing() -> None:
    assert not parsed("[tool.ruff]\nline-length = 100\n").declares
    assert parsed("[tool.poetry.dependencies]\nsix = '*'\n").declares


def with_source(source: str) -> str:
    return (
        f'[project]\nname = "a"\ndependencies = ["mine>=1"]\n[tool.uv.sources]\nmine = {source}\n'
    )


def test_a_source_by_address_takes_the_place_of_the_name() -> None:
    pyproject = parsed(with_source('{ git = "https://h/m.git", tag = "v1", subdirectory = "x" }'))
    assert lines(pyproject) == ["mine @ git+https://h/m.git@v1#subdirectory=x"]


@pytest.mark.parametrize("source", ['{ path = "../mine" }', "{ workspace = true }"])
def test_a_source_on_this_machine_is_never_looked_up_on_an_index(source: str) -> None:
    pyproject = parsed(with_source(source))
    assert lines(pyproject) == []
    assert [str(one.place) for one in pyproject.declared.local] == [f"{FILE}:3"]


@pytest.mark.parametrize(
    "source", ['{ index = "private" }', '[{ url = "https://h", marker = "x" }]']
)
def test_a_source_in_another_form_is_refused_rather_than_guessed(source: str) -> None:
    with pytest.raises(DependencyError, match=rf"^{FILE}:3: .*'mine'"):
        parsed(with_source(source))


def test_a_named_index_is_kept_with_the_requirement_that_must_come_from_it() -> None:
    text = with_source('{ index = "private" }')
    text += '[[tool.uv.index]]\nname = "private"\nurl = "../simple"\nexplicit = true\n'
    pyproject = parse_pyproject(text.encode(), FILE, folder="/srv/project")
    assert lines(pyproject) == ['mine>=1 from {"index" = "private"}']
    assert pyproject.indexes == (
        {"name": "private", "url": "file:///srv/simple", "explicit": True},
    )


@pytest.mark.parametrize(
    "text",
    [
        "[project\n",
        '[project]\nname = "a"\ndependencies = "six"\n',
        '[project]\ndependencies = ["=1"]\n',
    ],
)
def test_a_broken_file_is_refused_by_name(text: str) -> None:
    with pytest.raises(DependencyError, match=FILE):
        parsed(text)


CHOOSING = """
[project]
name = "mine"
dependencies = ["six"]
[project.optional-dependencies]
Fast_Math = ["numpy>=2"]
[dependency-groups]
train = ["optax", {include-group = "common"}]
common = ["tqdm"]
loop = [{include-group = "loop"}]
"""


def test_requirements_of_a_group_have_their_line_and_mark_however_they_are_spelled() -> None:
    text = """\
[project]
name = "a"
[dependency-groups]
Train_it = [{include-group = "base"}, "Gamma [x]  >= 1"]
base = [
    "JAX >= 0.4",  # kn:keep
]
[tool.kinetic]
groups = ["train-it"]
"""
    found = parsed(text).declared.requirements
    assert [(line.name, line.place.line, line.keep) for line in found] == [
        ("jax", 6, True),
        ("gamma", 4, False),
    ]


def test_extras_and_groups_that_tool_kinetic_names_are_read() -> None:
    text = CHOOSING + '[tool.kinetic]\nextras = ["fast-math"]\ngroups = ["train"]\n'
    found = parse_pyproject(text.encode(), "pyproject.toml")
    names = [line.canonical for line in found.declared.requirements]
    assert names == ["six", "numpy>=2", "optax", "tqdm"]
    assert (found.chosen.extras, found.chosen.groups) == (("fast-math",), ("train",))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("extras = ['nope']", r"pyproject\.toml:12: 'nope' .* \[project\.optional-dependencies\]"),
        ("groups = ['nope']", r"pyproject\.toml:12: 'nope' .* \[dependency-groups\]"),
        ("groups = 'train'", r"pyproject\.toml:12: .* list of names"),
        ("extra = ['fast-math']", r"pyproject\.toml:12: .* no key 'extra'"),
        ("groups = ['loop']", r"pyproject\.toml:7: .* cannot be read: .*loop"),
    ],
)
def test_what_tool_kinetic_cannot_mean_is_refused_by_line(table: str, message: str) -> None:
    text = f"{CHOOSING}[tool.kinetic]\n{table}\n"
    with pytest.raises(DependencyError, match=message):
        parse_pyproject(text.encode(), "pyproject.toml")
