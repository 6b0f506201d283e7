"""The right file is found, and its digest changes exactly when the requirements change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kinetic_images.dependencies import (
    OWN_NAMES,
    Dependencies,
    find_dependencies,
    find_source,
    read_dependencies,
)
from kinetic_images.errors import DependencyError
from kinetic_images.lock.uv_input import write_input
from kinetic_payload.distributions import DISTRIBUTIONS

LINUX = "linux-x86_64"
PROJECT = '[project]\nname = "My_App"\nversion = "1"\n'


def project(folder: Path, **files: str) -> Path:
    """Write *files*: `requirements` is requirements.txt, `pyproject` and `uv` are TOML."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        suffix = "toml" if name.endswith(("pyproject", "uv")) else "txt"
        (folder / f"{name}.{suffix}").write_text(text)
    return folder


def dependencies(folder: Path, text: str, **files: str) -> Dependencies:
    source = project(folder, requirements=text, **files) / "requirements.txt"
    return read_dependencies(source, environ={})


def digest(folder: Path, text: str, platform: str = LINUX, python: str = "3.11") -> str:
    return dependencies(folder, text).digest(platform, python)


def names(found: Dependencies) -> list[str]:
    return [one.name for one in found.requirements]


# The file


def test_requirements_come_before_pyproject_with_a_note(tmp_path: Path) -> None:
    text = '[project]\nname = "a"\ndependencies = ["iniconfig"]\n'
    root = project(tmp_path / "p", requirements="six", pyproject=text)
    found = find_dependencies(root, home=tmp_path, environ={})
    assert found.source == root / "requirements.txt"
    assert found.notes == (
        "requirements.txt was read; the dependencies in pyproject.toml beside it were ignored.",
    )


def test_the_search_goes_up_to_the_root_of_the_repository_or_the_home_folder(
    tmp_path: Path,
) -> None:
    top = project(tmp_path / "p", requirements="six")
    inner = project(top / "src" / "app", pyproject="[tool.ruff]\n")
    (inner / "main.py").touch()
    assert find_source(inner / "main.py", home=tmp_path) == top / "requirements.txt"
    assert find_source(inner, home=top) is None
    assert find_source(top, home=top) == top / "requirements.txt"
    (top / "src" / ".git").touch()  # A file, as in a worktree.
    assert find_source(inner, home=tmp_path) is None


def test_a_project_without_declarations_has_a_note(tmp_path: Path) -> None:
    root = project(tmp_path / "p")
    (root / ".git").mkdir()
    found = find_dependencies(root, home=tmp_path, environ={})
    assert found.source is None
    assert str(root) in found.notes[0]
    assert found.digest(LINUX, "3.11") == Dependencies().digest(LINUX, "3.11")


POETRY = PROJECT + "[tool.poetry]\n"


@pytest.mark.parametrize(
    ("name", "beside", "command"),
    [
        ("poetry.lock", {"pyproject": POETRY}, "poetry export"),
        ("pdm.lock", {"pyproject": PROJECT}, "pdm export --prod"),
        ("Pipfile.lock", {}, "pipenv requirements"),
        ("pixi.lock", {"pyproject": PROJECT}, "pixi run uv pip list"),
        ("environment.yml", {}, "uv pip list"),
        ("setup.py", {"pyproject": "[build-system]\n"}, "uv pip compile setup.py"),
        ("setup.cfg", {}, "uv pip compile setup.cfg"),
    ],
)
def test_a_file_of_another_tool_is_noted_with_the_command_that_makes_it_usable(
    tmp_path: Path, name: str, beside: dict[str, str], command: str
) -> None:
    root = project(tmp_path / "p", **beside)
    (root / ".git").mkdir()
    (root / name).write_text("install_requires =\n  six")
    note = find_dependencies(root, home=tmp_path, environ={}).notes[-1]
    assert note.startswith(f"{root / name} is not read. To use its packages, run there: {command} ")
    project(root, requirements="six")
    assert find_dependencies(root, home=tmp_path, environ={}).notes == ()


# The digest


@pytest.mark.parametrize(
    "text",
    [
        "b==1\na>=1,<2\n",
        "# why\na>=1,<2\n\n\nb==1\n",
        "A <2, >=1 # because\r\nB==1\r\n",
        "a<2,\\\n>=1\nb==1\nb==1",
        "a>=1,<2\nb==1\nwin ; sys_platform == 'win32'\nkinetic ; sys_platform == 'win32'",
        "-r more.txt\nb==1",
    ],
)
def test_spelling_and_files_change_no_digest(tmp_path: Path, text: str) -> None:
    project(tmp_path / "1", more="a>=1,<2")
    assert digest(tmp_path / "1", text) == digest(tmp_path / "2", "a>=1,<2\nb==1")


@pytest.mark.parametrize(
    "text",
    [
        "a==1\nb",
        "a[x]\nb",
        "a\nb\nc",
        "a",
        "a --hash=sha256:aa\nb",
        "a @ https://h/a.zip\nb",
        "a ; python_full_version != '3.11.4'\nb",
        "a # kn:keep\nb",
        "a\nb\n-i https://h/simple",
        "a\nb\n--pre",
        "a\nb\nkinetic",
        "a\nb\n-c limits.txt",
        "a\nb\n-i ${HOST}",
    ],
)
def test_every_ingredient_changes_the_digest(tmp_path: Path, text: str) -> None:
    project(tmp_path / "1", limits="a<9")
    assert digest(tmp_path / "1", text) != digest(tmp_path / "2", "a\nb")


def test_target_settings_and_order_of_indexes_are_ingredients_and_credentials_are_not(
    tmp_path: Path,
) -> None:
    plain = digest(tmp_path / "0", "a\n-i https://h/simple")
    assert plain == digest(tmp_path / "0", "a\n-i https://me:secret@h/simple")
    assert plain != digest(tmp_path / "0", "a\n-i https://h/simple", "linux-aarch64")
    assert plain != digest(tmp_path / "0", "a\n-i https://h/simple", python="3.12")
    one, two = "--extra-index-url https://one\n", "--extra-index-url https://two\n"
    assert digest(tmp_path / "0", one + two) != digest(tmp_path / "0", two + one)
    assert digest(tmp_path / "0", "a\n-f x") != digest(tmp_path / "1", "a\n-f x"), "another folder"
    plain = digest(tmp_path / "0", "a")
    for setting in ("index-url = 'https://h'", "override-dependencies = ['a<1']"):
        found = dependencies(tmp_path / "1", "a", pyproject=f"[tool.uv]\n{setting}\n")
        assert found.digest(LINUX, "3.11") != plain
    source = tmp_path / "0" / "requirements.txt"
    found = read_dependencies(source, environ={"UV_INDEX": "https://me:secret@h"})
    assert found.digest(LINUX, "3.11") != plain


# Our own names, the project itself, and paths


@pytest.mark.parametrize("name", sorted(DISTRIBUTIONS.values()))
def test_our_names_are_left_out_with_one_sentence_however_they_are_spelled(
    tmp_path: Path, name: str
) -> None:
    found = dependencies(tmp_path, f"six\n{name.upper().replace('-', '_')}==9 # ours\n")
    assert names(found) == ["six"]
    assert [one.name for one in found.own] == [name]
    (note,) = found.notes
    assert note.startswith(f"requirements.txt:2: {name}==9 is not taken from an index: ")


def test_only_exactly_our_names_are_ours(tmp_path: Path) -> None:
    found = dependencies(tmp_path, "kinetics\nkinetic-images-extra\npy-kinetic\n")
    assert len(found.requirements) == 3
    assert len(OWN_NAMES) == 6


LISTED = '[project]\nname = "a"\ndependencies = ["six"]\noptional-dependencies.gpu = ["cupy"]\n'


@pytest.mark.parametrize(
    ("text", "files", "expected"),
    [
        ("-e .[gpu]\niniconfig", {"pyproject": LISTED}, ["iniconfig", "six", "cupy"]),
        (
            "-e part ; python_version > '3.98'",
            {"part/pyproject": PROJECT + "requires-python = '>3.98'"},
            [],
        ),
        ("-r deps/dev.txt", {"pyproject": LISTED, "deps/dev": "-e .\n"}, ["six"]),
        ("-e .", {}, []),
        ("-e .", {"pyproject": PROJECT}, []),
    ],
)
def test_the_project_itself_gives_way_to_its_dependencies(
    tmp_path: Path, text: str, files: dict[str, str], expected: list[str]
) -> None:
    for folder in ("deps", "part"):
        (tmp_path / folder).mkdir()
    found = dependencies(tmp_path, text, **files)
    assert names(found) == expected
    assert found.local == ()
    found.refuse_unusable("3.11")


def test_an_extra_of_the_project_within_its_extras_keeps_its_marker(tmp_path: Path) -> None:
    text = PROJECT + (
        "[project.optional-dependencies]\n"
        "all = [\"my-app[gpu] ; python_version < '3'\", 'six']\n"
        "gpu = [\"cupy ; sys_platform == 'linux'\", 'my.app[all]']\n"
    )
    found = dependencies(tmp_path, "-e .[all] ; os_name == 'posix'", pyproject=text)
    assert [one.canonical for one in found.requirements] == [
        'cupy ; ((sys_platform == "linux") and (python_version < "3")) and (os_name == "posix")',
        'six ; os_name == "posix"',
    ]
    assert "'gpux'" in dependencies(tmp_path, "-e .[gpux]", pyproject=PROJECT).notes[0]


@pytest.mark.parametrize(
    ("files", "named"),
    [
        ({"setup.py": "from setuptools import setup; setup(install_requires=['six'])"}, "setup.py"),
        ({"setup.cfg": "[options]\ninstall_requires = six\n"}, "setup.cfg"),
        ({"setup.py": "", "pyproject.toml": "[build-system]\nrequires = ['setuptools']\n"}, "setup.py"),
        ({"pyproject.toml": PROJECT + "dynamic = ['dependencies']\n"}, "pyproject.toml"),
        ({"pyproject.toml": "[tool.poetry.dependencies]\nsix = '*'\n"}, "pyproject.toml"),
        ({"pyproject.toml": PROJECT + "dynamic = ['optional-dependencies']\n"}, "pyproject.toml"),
    ],
)  # fmt: skip
def test_a_project_whose_dependencies_only_its_build_can_tell_is_refused(
    tmp_path: Path, files: dict[str, str], named: str
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(DependencyError) as caught:
        dependencies(tmp_path, "six\n-e .[all]\n")
    assert caught.value.message.startswith("requirements.txt:2: '-e .[all]'")
    assert named in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("-e ../other", "KINETIC_PACKAGE_ROOT"),
        ("./wheels/x-1-py3-none-any.whl", "--find-links"),
        ("x @ ../x", "NAME @ git"),
        ("./part", "editable"),
    ],
)
def test_another_path_is_refused_by_file_and_line_if_its_marker_is_true(
    tmp_path: Path, line: str, hint: str
) -> None:
    project(tmp_path / "part", pyproject=PROJECT)
    found = dependencies(tmp_path, f"six\n{line}\n")
    with pytest.raises(DependencyError) as caught:
        found.refuse_unusable("3.11")
    assert f"{tmp_path}/requirements.txt:2: {line!r}" in caught.value.message
    assert hint in (caught.value.hint or "")
    found = dependencies(tmp_path, "./win.whl ; sys_platform == 'win32'\n")
    found.for_target(LINUX, "3.11").refuse_unusable("3.11")


# What uv gets, and what it prints


def test_lines_for_the_installer_have_local_folders_and_flags(tmp_path: Path) -> None:
    found = dependencies(
        tmp_path, "--pre\n--trusted-host h\n-f wheels\n-i https://a:b@h\nsix --hash=sha256:aa -C=x"
    )
    (tmp_path / "scratch").mkdir()
    given = write_input(tmp_path / "scratch", found)
    requirements = tmp_path / "scratch" / "requirements.txt"
    assert given.arguments == ("--prerelease=allow", "--allow-insecure-host=h", str(requirements))
    assert requirements.read_text().splitlines() == [
        f"--find-links file://{tmp_path}/wheels",
        "--index-url https://a:b@h",
        "six --hash=sha256:aa",
    ]
    assert found.notes == ("requirements.txt:5: -C was ignored: only pip has this option.",)


def test_the_output_of_an_installer_leads_to_the_lines_and_common_words_do_not(
    tmp_path: Path,
) -> None:
    found = dependencies(tmp_path, "requests\nbuild\nmy_pkg>=99\n")
    words = (
        "error: No solution found when resolving dependencies\n"
        "cause: Because only my-pkg<=1 is available and you require my-pkg>=99, we can conclude "
        "that your requirements are unsatisfiable. hint: build requests failed"
    )
    assert found.named_in(words) == [(f"{tmp_path}/requirements.txt:3", "my-pkg>=99")]


# Settings of uv


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("UV_CONFIG_FILE", "{here}/other.txt", [{"no-index": True}]),
        ("UV_NO_CONFIG", "1", []),
        ("HOME", "{here}", [{"prerelease": "allow"}]),
    ],
)
def test_settings_in_another_place_replace_those_in_pyproject(
    tmp_path: Path, variable: str, value: str, expected: Any
) -> None:
    text = "[tool.uv]\nprerelease = 'allow'\n"
    source = project(tmp_path, requirements="a", pyproject=text, other="no-index = true\n")
    found = read_dependencies(
        source / "requirements.txt", environ={variable: value.format(here=tmp_path)}
    )
    assert list(found.settings.tables) == expected


def test_variables_without_effect_are_noted(tmp_path: Path) -> None:
    source = project(tmp_path, requirements="a") / "requirements.txt"
    environ = {"UV_CONSTRAINT": "x.txt", "PIP_INDEX_URL": "https://h", "PIP_CERT": "/c"}
    first, second = read_dependencies(source, environ=environ).notes
    assert "PIP_INDEX_URL has no effect" in first
    assert "UV_DEFAULT_INDEX" in first
    assert "UV_CONSTRAINT has no effect" in second


def test_an_index_of_the_settings_precedes_that_of_the_file_with_a_note(tmp_path: Path) -> None:
    settings = "[tool.uv]\nindex-url = 'https://o'"
    found = dependencies(tmp_path, "a\n-i https://h", pyproject=settings)
    assert found.notes == (
        "requirements.txt:2: --index-url has no effect: as in uv, index-url of uv's settings takes "
        "precedence.",
    )
