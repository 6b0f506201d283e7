"""The right file is found, and its digest changes exactly when what is asked for changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from kinetic_images.dependencies import (
    OWN_NAMES,
    Dependencies,
    find_dependencies,
    find_source,
    read_dependencies,
)
from kinetic_images.errors import DependencyError
from kinetic_payload.distributions import DISTRIBUTIONS

LINUX = "linux-x86_64"


def project(folder: Path, **files: str) -> Path:
    """Write *files*: `requirements` is requirements.txt, `pyproject` is pyproject.toml."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / (f"{name}.toml" if name == "pyproject" else f"{name}.txt")).write_text(text)
    return folder


def dependencies(folder: Path, text: str, **files: str) -> Dependencies:
    return read_dependencies(project(folder, requirements=text, **files) / "requirements.txt")


def digest(folder: Path, text: str, platform: str = LINUX, python: str = "3.11") -> str:
    return dependencies(folder, text).digest(platform, python)


def test_requirements_come_before_pyproject_and_that_is_said(tmp_path: Path) -> None:
    text = '[project]\nname = "a"\ndependencies = ["iniconfig"]\n'
    root = project(tmp_path / "p", requirements="six", pyproject=text)
    found = find_dependencies(root, home=tmp_path)
    assert found.source == root / "requirements.txt"
    assert found.notes == (
        "requirements.txt was read, and the dependencies in pyproject.toml beside it were not.",
    )


def test_the_search_goes_up_from_the_entry_file_past_a_pyproject_of_tools(tmp_path: Path) -> None:
    top = project(tmp_path / "p", requirements="six")
    inner = project(top / "src" / "app", pyproject="[tool.ruff]\n")
    (inner / "main.py").touch()
    assert find_dependencies(inner / "main.py", home=tmp_path).source == top / "requirements.txt"


def test_the_search_ends_at_the_root_of_the_repository(tmp_path: Path) -> None:
    repository = project(project(tmp_path / "a", requirements="six") / "repository")
    (repository / ".git").touch()  # A file, as in a worktree.
    inner = project(repository / "inner")
    assert find_source(inner, home=tmp_path) is None


def test_the_search_ends_before_the_home_folder(tmp_path: Path) -> None:
    home = project(tmp_path / "home", requirements="six")
    inner = project(home / "inner")
    assert find_source(inner, home=home) is None
    assert find_source(home, home=home) == home / "requirements.txt"


def test_a_project_without_declarations_says_so(tmp_path: Path) -> None:
    root = project(tmp_path / "p")
    (root / ".git").mkdir()
    found = find_dependencies(root, home=tmp_path)
    assert found.source is None
    assert str(root) in found.notes[0]
    assert found.digest(LINUX, "3.11") == Dependencies().digest(LINUX, "3.11")


@pytest.mark.parametrize(
    "text",
    [
        "b==1\na>=1,<2\n",
        "# why\na>=1,<2\n\n\nb==1\n",
        "A <2, >=1 # because\r\nB==1\r\n",
        "a<2,\\\n>=1\nb==1\nb==1",
        "a>=1,<2\nb==1\nwin ; sys_platform == 'win32'",
    ],
)
def test_spelling_changes_no_digest(tmp_path: Path, text: str) -> None:
    assert digest(tmp_path / "1", text) == digest(tmp_path / "2", "a>=1,<2\nb==1")


def test_an_include_has_the_digest_of_its_lines(tmp_path: Path) -> None:
    included = dependencies(tmp_path / "1", "-r more.txt\nb==1", more="a")
    assert included.digest(LINUX, "3.11") == digest(tmp_path / "2", "a\nb==1")


@pytest.mark.parametrize(
    "text",
    [
        "a==1\nb",
        "a[x]\nb",
        "a\nb\nc",
        "a",
        "a --hash=sha256:aa\nb",
        "a @ https://h/a.zip\nb",
        "a ; python_version > '3'\nb",
        "a # kn:keep\nb",
        "a\nb\n-i https://h/simple",
        "a\nb\n--pre",
        "a\nb\nkinetic",
        "a\nb\n-c limits.txt",
    ],
)
def test_every_ingredient_changes_the_digest(tmp_path: Path, text: str) -> None:
    project(tmp_path / "1", limits="a<9")
    assert digest(tmp_path / "1", text) != digest(tmp_path / "2", "a\nb")


def test_platform_and_python_are_ingredients_and_credentials_are_not(tmp_path: Path) -> None:
    plain = digest(tmp_path, "a\n-i https://h/simple")
    assert plain == digest(tmp_path, "a\n-i https://me:secret@h/simple")
    assert plain != digest(tmp_path, "a\n-i https://h/simple", "linux-aarch64")
    assert plain != digest(tmp_path, "a\n-i https://h/simple", python="3.12")


def test_the_order_of_indexes_is_an_ingredient(tmp_path: Path) -> None:
    one, two = "--extra-index-url https://one\n", "--extra-index-url https://two\n"
    assert digest(tmp_path, one + two) != digest(tmp_path, two + one)


@pytest.mark.parametrize("name", sorted(DISTRIBUTIONS.values()))
def test_our_names_are_left_out_with_one_sentence_however_they_are_spelled(
    tmp_path: Path, name: str
) -> None:
    found = dependencies(tmp_path, f"six\n{name.upper().replace('-', '_')}==9 # ours\n")
    assert [one.name for one in found.requirements] == ["six"]
    assert [one.name for one in found.own] == [name]
    (note,) = found.notes
    assert note.startswith(f"requirements.txt:2: {name}==9 is Kinetic's own")


def test_only_exactly_our_names_are_ours(tmp_path: Path) -> None:
    found = dependencies(tmp_path, "kinetics\nkinetic-images-extra\npy-kinetic\n")
    assert len(found.requirements) == 3
    assert len(OWN_NAMES) == 6


def test_the_project_itself_gives_way_to_what_it_depends_on(tmp_path: Path) -> None:
    text = '[project]\nname = "a"\ndependencies = ["six"]\noptional-dependencies.gpu = ["cupy"]\n'
    found = dependencies(tmp_path, "-e .[gpu]\niniconfig", pyproject=text)
    assert [one.name for one in found.requirements] == ["iniconfig", "six", "cupy"]
    assert found.local == ()
    assert "'-e .[gpu]' is the project itself" in found.notes[-1]
    found.refuse_local()


@pytest.mark.parametrize("line", ["-e ../other", "./wheels/x-1-py3-none-any.whl", "x @ ../x"])
def test_another_path_is_refused_by_file_and_line(tmp_path: Path, line: str) -> None:
    found = dependencies(tmp_path, f"six\n{line}\n")
    with pytest.raises(DependencyError) as caught:
        found.refuse_local()
    assert f"{tmp_path}/requirements.txt:2: {line!r}" in caught.value.message
    assert caught.value.hint is not None


def test_a_path_whose_marker_is_false_here_is_nobodys_trouble(tmp_path: Path) -> None:
    found = dependencies(tmp_path, "./win.whl ; sys_platform == 'win32'\n")
    found.for_target(LINUX, "3.11").refuse_local()


def test_an_installers_words_lead_to_the_lines_and_common_words_do_not(tmp_path: Path) -> None:
    found = dependencies(tmp_path, "requests\nbuild\nmy_pkg>=99\n")
    words = (
        "error: No solution found when resolving dependencies\n"
        "cause: Because only my-pkg<=1 is available and you require my-pkg>=99, we can conclude "
        "that your requirements are unsatisfiable. hint: build requests failed"
    )
    assert found.named_in(words) == [(f"{tmp_path}/requirements.txt:3", "my-pkg>=99")]


def test_build_settings_of_one_requirement_are_said_not_to_be_read(tmp_path: Path) -> None:
    found = dependencies(tmp_path, 'six --config-settings="a=b c" --hash=sha256:aa')
    assert found.installer_lines() == ["six --hash=sha256:aa"]
    assert found.notes == (
        "requirements.txt:1: --config-settings was not read: it is an option of pip's own.",
    )


def test_lines_for_the_installer_find_local_folders_and_flags(tmp_path: Path) -> None:
    found = dependencies(tmp_path, "--pre\n--trusted-host h\n-f wheels\n-i https://a:b@h\nsix")
    assert found.installer_lines() == [
        f"--find-links {tmp_path}/wheels",
        "--index-url https://a:b@h",
        "six",
    ]
    assert found.installer_arguments() == ["--prerelease=allow", "--allow-insecure-host=h"]
