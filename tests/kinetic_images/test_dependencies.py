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
    source = project(folder, requirements=text, **files) / "requirements.txt"
    return read_dependencies(source, environ={})


def digest(folder: Path, text: str, platform: str = LINUX, python: str = "3.11") -> str:
    return dependencies(folder, text).digest(platform, python)


def test_requirements_come_before_pyproject_and_that_is_said(tmp_path: Path) -> None:
    text = '[project]\nname = "a"\ndependencies = ["iniconfig"]\n'
    root = project(tmp_path / "p", requirements="six", pyproject=text)
    found = find_dependencies(root, home=tmp_path, environ={})
    assert found.source == root / "requirements.txt"
    assert found.notes == (
        "requirements.txt was read; the dependencies in pyproject.toml beside it were ignored.",
    )


def test_the_search_goes_up_from_the_entry_file_past_a_pyproject_of_tools(tmp_path: Path) -> None:
    top = project(tmp_path / "p", requirements="six")
    inner = project(top / "src" / "app", pyproject="[tool.ruff]\n")
    (inner / "main.py").touch()
    assert (
        find_dependencies(inner / "main.py", home=tmp_path, environ={}).source
        == top / "requirements.txt"
    )


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
    found = find_dependencies(root, home=tmp_path, environ={})
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
        "a\nb\n-i ${HOST}",
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
    assert note.startswith(f"requirements.txt:2: {name}==9 is not taken from an index: ")


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
        "requirements.txt:1: --config-settings was ignored: only pip has this option.",
    )


def test_lines_for_the_installer_find_local_folders_and_flags(tmp_path: Path) -> None:
    found = dependencies(tmp_path, "--pre\n--trusted-host h\n-f wheels\n-i https://a:b@h\nsix")
    assert found.installer_lines() == [
        f"--find-links file://{tmp_path}/wheels",
        "--index-url https://a:b@h",
        "six",
    ]
    assert found.installer_arguments() == ["--prerelease=allow", "--allow-insecure-host=h"]


PROJECT = '[project]\nname = "My_App"\nversion = "1"\n'


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


def test_an_extra_that_does_not_exist_is_noted(tmp_path: Path) -> None:
    found = dependencies(tmp_path, "-e .[gpux]", pyproject=PROJECT)
    assert "'gpux'" in found.notes[0]


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


def test_the_project_itself_without_dependencies_is_left_out(tmp_path: Path) -> None:
    assert dependencies(tmp_path / "1", "-e .").requirements == ()
    assert dependencies(tmp_path / "2", "-e .", pyproject=PROJECT).requirements == ()


def test_the_project_itself_is_named_from_where_pip_runs_also_in_an_included_file(
    tmp_path: Path,
) -> None:
    (tmp_path / "deps").mkdir()
    (tmp_path / "deps" / "dev.txt").write_text("-e .\n")
    text = PROJECT + "dependencies = ['six']\n"
    found = dependencies(tmp_path, "-r deps/dev.txt", pyproject=text)
    assert [one.name for one in found.requirements] == ["six"]
    assert found.local == ()


def test_settings_of_two_projects_are_refused_as_uv_would_use_one_of_them(tmp_path: Path) -> None:
    inner = project(tmp_path / "top" / "app")
    for folder in (inner.parent, inner):
        text = PROJECT + "[[tool.uv.index]]\nurl = 'https://h'\n"
        project(folder, pyproject=text, requirements="-e ./app")
    with pytest.raises(DependencyError) as caught:
        read_dependencies(inner.parent / "requirements.txt", project=inner, environ={})
    assert str(inner / "pyproject.toml") in caught.value.message
    (inner.parent / "pyproject.toml").unlink()
    found = read_dependencies(inner.parent / "requirements.txt", project=inner, environ={})
    assert found.settings.passed == {"index": [{"url": "https://h"}]}


def test_settings_are_digested(tmp_path: Path) -> None:
    plain = digest(tmp_path / "1", "a")
    for number, setting in enumerate(
        ("index-url = 'https://h'", "override-dependencies = ['a<1']", "prerelease = 'allow'"), 2
    ):
        text = f"[tool.uv]\n{setting}\n"
        found = dependencies(tmp_path / str(number), "a", pyproject=text)
        assert found.digest(LINUX, "3.11") != plain
    found = read_dependencies(
        tmp_path / "1" / "requirements.txt", environ={"UV_INDEX": "https://me:secret@h"}
    )
    assert found.digest(LINUX, "3.11") != plain


def test_uv_toml_takes_the_place_of_settings_in_pyproject_and_that_is_said(tmp_path: Path) -> None:
    (tmp_path / "uv.toml").write_text("index-url = 'https://h'\n")
    found = dependencies(tmp_path, "a", pyproject="[tool.uv]\nprerelease = 'allow'\n")
    assert found.settings.passed == {"index-url": "https://h"}
    assert found.notes == (
        f"{tmp_path}/pyproject.toml: [tool.uv] was ignored: uv reads uv.toml instead.",
    )


def test_variables_that_choose_and_those_of_pip_are_said_not_to_be_read(tmp_path: Path) -> None:
    source = project(tmp_path, requirements="a") / "requirements.txt"
    found = read_dependencies(
        source, environ={"UV_PRERELEASE": "allow", "PIP_INDEX_URL": "https://h", "PIP_CERT": "/c"}
    )
    first, second = found.notes
    assert "UV_PRERELEASE was ignored" in first
    assert "PIP_INDEX_URL was ignored" in second
    assert "UV_DEFAULT_INDEX" in second


def test_a_file_of_settings_named_by_a_variable_takes_the_place_of_all(tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text("no-index = true\nfind-links = ['x']\n")
    text = "[tool.uv]\nprerelease = 'allow'\n"
    source = project(tmp_path / "p", requirements="a", pyproject=text) / "requirements.txt"
    other = {"UV_CONFIG_FILE": str(tmp_path / "other.toml")}
    found = read_dependencies(source, environ=other)
    assert found.settings.passed == {"no-index": True, "find-links": [f"file://{tmp_path}/x"]}
    assert read_dependencies(source, environ={"UV_NO_CONFIG": "1"}).settings.passed == {}


def test_an_index_that_comes_before_that_of_the_file_is_said(tmp_path: Path) -> None:
    found = dependencies(
        tmp_path, "a\n-i https://h", pyproject="[tool.uv]\nindex-url = 'https://o'"
    )
    assert found.notes == (
        "requirements.txt:2: --index-url has no effect: as in uv, index-url in the settings of uv "
        "takes precedence.",
    )


def test_overrides_and_constraints_of_ours_and_paths_are_handled_as_in_requirements(
    tmp_path: Path,
) -> None:
    text = "[tool.uv]\noverride-dependencies = ['Kinetic==9', 'six==1']\nconstraint-dependencies = ['kinetic<1', 'x @ ./x.whl']\n"
    found = dependencies(tmp_path, "six", pyproject=text)
    assert [one.name for one in found.overrides] == ["six"]
    assert found.constraints == ()
    assert "the override of kinetic was ignored" in found.notes[0]
    with pytest.raises(DependencyError, match=r"pyproject\.toml:3: 'x @ \./x\.whl'"):
        found.refuse_local()


def test_a_marker_about_the_patch_version_stays_where_only_the_minor_is_known(
    tmp_path: Path,
) -> None:
    lines = [
        "a ; python_full_version >= '3.11.4'",
        "b ; python_full_version < '3.11'",
        "c ; implementation_version == '3.11.2' and sys_platform == 'win32'",
        "d ; platform_release >= '5'",
    ]
    found = dependencies(tmp_path, "\n".join(lines))
    assert [one.name for one in found.for_target(LINUX, "3.11").requirements] == ["a", "d"]
    assert [one.name for one in found.for_target(LINUX, "3.11.3").requirements] == ["d"]
    assert found.for_target(LINUX, "3.11").installer_lines()[0] == (
        'a ; python_full_version >= "3.11.4"'
    )


WORKSPACE = "[tool.uv.workspace]\nmembers = ['*']\n"


@pytest.mark.parametrize("inner", ["pyproject.toml", "uv.toml"])
@pytest.mark.parametrize("outer", [WORKSPACE, f"{WORKSPACE}[tool.uv]\nindex-url = 'https://h/a'\n"])
def test_settings_of_a_member_which_uv_passes_over_are_refused(
    tmp_path: Path, inner: str, outer: str
) -> None:
    member = '[project]\nname = "m"\nversion = "1"\ndependencies = ["six"]\n'
    settings = "index-url = 'https://h/b'\n"
    root = project(tmp_path, pyproject=outer)
    folder = project(root / "m", pyproject=member)
    with (folder / inner).open("a") as file:
        file.write(f"[tool.uv]\n{settings}" if inner == "pyproject.toml" else settings)
    with pytest.raises(DependencyError, match="uv ignores") as caught:
        find_dependencies(folder, home=tmp_path, environ={})
    assert caught.value.message.startswith(f"{folder / inner}: ")
    assert str(root / "pyproject.toml") in str(caught.value.hint)


@pytest.mark.parametrize(
    "settings",
    [
        "[tool.uv]\ndev-dependencies = ['ruff']\n",
        "[[tool.uv.index]]\nname = 'i'\nurl = 'https://h/b'\nexplicit = true\n",
    ],
)
def test_settings_of_a_member_which_make_no_difference_are_not_refused(
    tmp_path: Path, settings: str
) -> None:
    member = '[project]\nname = "m"\nversion = "1"\ndependencies = ["six"]\n'
    project(tmp_path, pyproject=f"{WORKSPACE}[tool.uv]\nindex-url = 'https://h/a'\n")
    folder = project(tmp_path / "m", pyproject=member + settings)
    found = find_dependencies(folder, home=tmp_path, environ={})
    assert found.installer_settings() == '"index-url" = "https://h/a"\n'
