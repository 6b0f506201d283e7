"""Exactly one file of each package is chosen for the target, and a file that does not fit is refused."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from locked_project import Project, write_wheel

from kinetic_images.dependencies import find_dependencies, read_dependencies
from kinetic_images.errors import DependencyError, InstallError
from kinetic_images.lock.cache import ensure_lock
from kinetic_images.lock.jax import with_accelerator_jax
from kinetic_images.lock.resolve import index_failure
from kinetic_images.targets import Target
from kinetic_images.uv import find_uv

MACHINES = {
    "x86_64": Target(python="3.12"),
    "aarch64": Target(python="3.12", machine="aarch64"),
    "old": Target(python="3.12", glibc=(2, 17)),
}


@pytest.mark.parametrize(
    ("machine", "chosen"),
    [
        ("x86_64", "fast-2.0-cp312-cp312-manylinux_2_28_x86_64.whl"),
        ("aarch64", "fast-2.0-cp312-cp312-manylinux_2_17_aarch64.manylinux2014_aarch64.whl"),
        ("old", "fast-1.0-cp311-abi3-manylinux2014_x86_64.whl"),
    ],
)
def test_the_wheel_is_that_of_the_targets_python_processor_and_glibc(
    project: Project, machine: str, chosen: str
) -> None:
    for tag in (
        "cp312-cp312-manylinux_2_28_x86_64",
        "cp312-cp312-manylinux_2_17_aarch64.manylinux2014_aarch64",
        "cp311-cp311-manylinux_2_28_x86_64",
        "cp312-cp312-macosx_14_0_arm64",
        "cp312-cp312-win_amd64",
    ):
        project.wheel("fast", "2.0", tag=tag)
    project.wheel("fast", "1.0", tag="cp311-abi3-manylinux2014_x86_64")
    project.require("fast")

    assert project.files(MACHINES[machine]) == [chosen]


def test_a_repository_is_locked_to_a_commit(project: Project, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()
    (repository / "pyproject.toml").write_text(
        '[project]\nname = "alpha"\nversion = "3"\n[build-system]\nrequires = ["hatchling"]\n'
    )
    git = ("git", "-C", str(repository), "-c", "user.name=n", "-c", "user.email=e@example.org")
    subprocess.run(["git", "init", "-q", str(repository)], check=True)
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-qm", "1"], check=True)
    commit = subprocess.run(
        [*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True
    ).stdout.strip()
    project.environ |= {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.file://{repository}.insteadOf",
        "GIT_CONFIG_VALUE_0": "https://git.example.org/alpha",
    }
    project.require("alpha @ git+https://git.example.org/alpha")
    (package,) = project.lock().packages
    assert (package.name, package.version, package.file, package.sha256, package.address) == (
        "alpha",
        "3",
        "",
        commit,
        "git+https://git.example.org/alpha",
    )


def test_the_hash_of_a_line_decides_between_wheels_of_one_version(project: Project) -> None:
    project.wheel("fast", tag="cp311-cp311-manylinux_2_28_x86_64")
    plain = project.wheel("fast", tag="py3-none-any")
    project.require(f"fast==1.0 --hash=sha256:{plain}")
    assert project.files() == ["fast-1.0-py3-none-any.whl"]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["alpha==1.0 --hash=sha256:" + "0" * 64], r"requirements\.txt:3: the SHA-256 of alpha-1"),
        (["alpha==1.0 --hash=md5:" + "0" * 32], r"requirements\.txt:3: alpha has .* no SHA-256"),
        (["--require-hashes", "alpha==1.0"], r"requirements\.txt:4: .* alpha has no hash"),
        (["--require-hashes", "alpha --hash=sha256:" + "0" * 64], r"requirements\.txt:4: .* alpha has no exact version"),
        (["--require-hashes", "beta==1.0 --hash=sha256:{beta}"], r"requirements\.txt: .* no hash of alpha==1\.0"),
        (["", "alpha[nope]"], r"requirements\.txt:4: alpha has no extra named 'nope'"),
    ],
)  # fmt: skip
def test_a_package_that_cannot_be_verified_is_refused_by_its_line(
    project: Project, lines: list[str], message: str
) -> None:
    project.wheel("alpha", extras=("x",))
    beta = project.wheel("beta", "1.0", "alpha")
    project.require(*(line.replace("{beta}", beta) for line in lines))
    with pytest.raises(DependencyError, match=message):
        project.lock()


def test_an_addition_of_kinetic_needs_no_hash_and_changes_no_version(project: Project) -> None:
    alpha = project.wheel("alpha", "1.0")
    project.wheel("alpha", "2.0")
    project.wheel("added", "1.0", "alpha")
    project.require("--require-hashes", f"alpha==1.0 --hash=sha256:{alpha}")
    assert project.files(additions=("added",)) == [
        "added-1.0-py3-none-any.whl",
        "alpha-1.0-py3-none-any.whl",
    ]


def test_a_preference_keeps_its_extras_when_it_gives_way(project: Project) -> None:
    for version in ("0.9", "0.10"):
        project.wheel("jax", version, 'libtpu ; extra == "tpu"', extras=("tpu",))
    project.wheel("libtpu")
    project.wheel("flax", "1.0", "jax<0.10")
    project.require("flax")
    lock = project.lock(preferences=("jax[tpu]==0.10",))
    assert {p.name: p.version for p in lock.packages} == {
        "flax": "1.0",
        "jax": "0.9",
        "libtpu": "1.0",
    }
    assert lock.notes == (
        "Another requirement does not fit the preferred version of jax; another one was chosen.",
    )


def test_an_old_jax_finds_its_libtpu_on_the_page_that_jax_names(project: Project) -> None:
    project.wheel("jax", "0.4.30", 'libtpu-nightly==0.1.dev1 ; extra == "tpu"', extras=("tpu",))
    page = project.folder / "page"
    write_wheel(page / "libtpu_nightly-0.1.dev1-py3-none-any.whl", "libtpu-nightly", "0.1.dev1")
    # The real uv, with a page on this machine in place of the one in the network.
    uv = find_uv().program
    (project.folder / "bin" / "uv").write_text(
        f'#!/bin/bash\nexec {uv} "${{@/https:*libtpu_releases.html/{page}}}"\n'
    )
    empty = (project.folder / "empty").as_uri()
    (project.root / "requirements.txt").write_text(f"-i {empty}\n-f {project.packages}\n")
    lock = project.lock(additions=("jax[tpu]==0.4.30",))
    assert [package.name for package in lock.packages] == ["jax", "libtpu-nightly"]
    assert "jax-releases/libtpu_releases.html" in lock.notes[0]


def test_the_hash_of_a_replaced_line_is_compared(project: Project) -> None:
    good = project.wheel("jax", "0.9", extras=("tpu",))
    flax = project.wheel("flax", "1.0", "jax")
    project.wheel("jax", "0.10", extras=("tpu",))
    for digest in (good, "0" * 64):
        project.require(
            "--require-hashes",
            f"flax==1.0 --hash=sha256:{flax}",
            f"jax==0.9 --hash=sha256:{digest}",
        )
        declared = project.request()
        found = with_accelerator_jax(declared.dependencies, "tpu", "3.11")
        more = {
            "dependencies": found.dependencies,
            "replaced": found.replaced,
            "additions": found.additions,
        }
        if digest == good:
            assert project.files(**more) == [
                "flax-1.0-py3-none-any.whl",
                "jax-0.9-py3-none-any.whl",
            ]
        else:
            with pytest.raises(
                DependencyError, match=r"requirements\.txt:5: the SHA-256 of jax-0\.9"
            ):
                project.lock(**more)


def test_an_override_of_jax_keeps_the_extra_of_the_accelerator(project: Project) -> None:
    for version in ("0.9", "0.10"):
        project.wheel("jax", version, 'libtpu ; extra == "tpu"', extras=("tpu",))
    project.wheel("libtpu")
    project.require("jax>=0.9")
    (project.root / "uv.toml").write_text('override-dependencies = ["jax==0.9"]\n')
    found = with_accelerator_jax(project.request().dependencies, "tpu", "3.11")
    more = {"dependencies": found.dependencies, "additions": found.additions}
    assert project.files(**more, preferences=found.preferences) == [
        "jax-0.9-py3-none-any.whl",
        "libtpu-1.0-py3-none-any.whl",
    ]


@pytest.mark.parametrize(("file", "head"), [("pyproject.toml", "[tool.uv]\n"), ("uv.toml", "")])
def test_settings_that_uv_would_ignore_are_refused_before_it_looks_for_packages(
    project: Project, file: str, head: str
) -> None:
    project.require("alpha")
    text = f"{head}index-url = 'https://private.example'\nfuture-setting = 1\n"
    (project.root / file).write_text(text)
    with pytest.raises(DependencyError, match=rf"(?s){file}.*unknown field") as caught:
        project.lock()
    assert "--upgrade uv" in (caught.value.hint or "")
    assert "compile" not in project.log.read_text()


def test_a_package_without_a_wheel_changes_nothing_for_the_others(project: Project) -> None:
    for name in ("only", "inner"):
        project.source(name)
    project.wheel("outer", "1.0", "inner")
    project.wheel("alpha", "1.0")
    project.source("alpha", "2.0")
    project.require("alpha", "only", "outer")
    assert project.files() == [
        "alpha-1.0-py3-none-any.whl",
        "inner-1.0.tar.gz",
        "only-1.0.tar.gz",
        "outer-1.0-py3-none-any.whl",
    ]
    project.require("alpha")
    assert project.files(None) == ["alpha-2.0.tar.gz"]


def test_a_package_without_a_wheel_is_not_blamed_for_another_mistake(
    project: Project,
) -> None:
    project.source("only")
    project.require("only", "nothere")
    with pytest.raises(InstallError, match="nothere was not found") as caught:
        project.lock()
    assert caught.value.places == (f"{project.root}/requirements.txt:4",)


def test_settings_for_another_place_do_not_change_a_lock_and_none_overrides_kinetic(
    project: Project,
) -> None:
    project.wheel("alpha")
    project.require("alpha")
    settings = project.root / "uv.toml"
    settings.write_text("[pip]\nuniversal = true\ntarget = 'somewhere'\n")
    assert project.files() == ["alpha-1.0-py3-none-any.whl"]
    settings.write_text("override-dependencies = ['kinetic==9.9']")
    with pytest.raises(DependencyError, match="names kinetic: it is one of Kinetic's own"):
        project.lock(None)


def test_a_version_of_python_in_the_settings_does_not_decide_for_this_machine(
    project: Project,
) -> None:
    project.wheel("alpha")
    project.require("alpha ; python_version < '3.14'")
    (project.root / "uv.toml").write_text("[pip]\npython-version = '3.14'\n")
    assert project.files(None) == ["alpha-1.0-py3-none-any.whl"]


def test_a_project_above_the_home_does_not_decide_for_code_without_a_project(
    project: Project,
) -> None:
    project.wheel("alpha")
    (project.folder / "pyproject.toml").write_text(
        "[project]\nname = 'above'\nversion = '1'\n[tool.uv]\nno-index = true\n"
        f"find-links = ['{project.packages}']\n"
    )
    project.require("alpha")
    request = project.request(additions=("alpha",))
    nowhere = find_dependencies(None, environ={**project.environ, "UV_OFFLINE": "1"})
    with pytest.raises(InstallError, match="alpha"):
        ensure_lock(
            replace(request, dependencies=nowhere),
            home=project.home,
            environ={**project.environ, "UV_OFFLINE": "1"},
            report=project.reports.append,
        )


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
    assert index_failure("Because there is no version of six==99 …", dependencies)[0] == ""
