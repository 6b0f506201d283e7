"""A lock that the project has is obeyed while it fits, and refused when it is stale."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from locked_project import Project

from kinetic_images.dependencies import read_dependencies
from kinetic_images.errors import DependencyError
from kinetic_images.targets import Category, Target
from kinetic_images.uv import find_uv

HERE = Target(python="{}.{}".format(*sys.version_info))


def declare(project: Project, *requirements: str, more: str = "") -> None:
    listed = ", ".join(f'"{text}"' for text in requirements)
    (project.root / "pyproject.toml").write_text(
        f'[project]\nname = "mine"\nversion = "1"\nrequires-python = ">=3.11"\n'
        f"dependencies = [{listed}]\n{more}"
        f'[tool.uv]\nno-index = true\nfind-links = ["{project.packages}"]\n'
    )


def uv(project: Project, *arguments: str) -> None:
    subprocess.run(
        [find_uv().program, *arguments, "--python", sys.executable],
        cwd=project.root,
        env=project.environ,
        check=True,
        capture_output=True,
    )


def versions(project: Project, **more: Any) -> dict[str, str]:
    return {package.name: package.version for package in project.lock(HERE, **more).packages}


OPTIONAL = (
    '[project.optional-dependencies]\nfast = ["beta"]\nother = ["delta"]\n'
    '[dependency-groups]\ntrain = ["gamma"]\ndev = ["delta"]\n'
)
CHOSEN = '[tool.kinetic]\nextras = ["fast"]\ngroups = ["train"]\n'


def test_uv_lock_keeps_its_versions_also_for_additions_of_kinetic(project: Project) -> None:
    for name in ("alpha", "beta"):
        project.wheel(name, "1.0")
    declare(project, "alpha", "beta ; sys_platform == 'darwin'")
    uv(project, "lock")
    project.wheel("alpha", "2.0")
    project.wheel("added", "1.0", "alpha")
    assert versions(project, additions=("added",)) == {"added": "1.0", "alpha": "1.0"}


@pytest.mark.parametrize(
    ("more", "reason"), [("", ""), ("prerelease = 'allow'\n", "pre-release mode")]
)
def test_a_stale_uv_lock_is_refused(project: Project, more: str, reason: str) -> None:
    project.wheel("alpha")
    project.wheel("beta")
    declare(project, "alpha")
    uv(project, "lock")
    declare(project, "alpha", *(() if more else ("beta",)))
    with (project.root / "pyproject.toml").open("a") as file:
        file.write(more)

    with pytest.raises(
        DependencyError, match=r"uv\.lock: the lock is stale: .*pyproject"
    ) as caught:
        project.lock(HERE)

    assert reason in str(caught.value)
    assert "uv lock" in (caught.value.hint or "")
    assert not list(project.home.rglob("locks/*.json"))


def test_the_lock_of_a_script_keeps_its_versions_until_it_is_stale(project: Project) -> None:
    project.wheel("alpha", "1.0")
    script = project.root / "train.py"
    settings = f'# [tool.uv]\n# no-index = true\n# find-links = ["{project.packages}"]\n'
    script.write_text(f'# /// script\n# dependencies = ["alpha"]\n{settings}# ///\n')
    uv(project, "lock", "--script", "train.py")
    project.wheel("alpha", "2.0")
    project.dependencies = lambda: read_dependencies(script, environ=project.environ)
    assert versions(project) == {"alpha": "1.0"}
    script.write_text(script.read_text().replace("alpha", "alpha>1"))
    with pytest.raises(
        DependencyError, match=r"(?s)train\.py\.lock: .* with: uv lock --script train"
    ):
        versions(project)


def test_uv_lock_of_the_workspace_holds_for_a_member(project: Project) -> None:
    project.wheel("alpha", "1.0")
    member = project.root / "member"
    member.mkdir()
    declare(project, more='[tool.uv.workspace]\nmembers = ["member"]\n')
    (member / "pyproject.toml").write_text(
        '[project]\nname = "member"\nversion = "1"\nrequires-python = ">=3.11"\n'
        'dependencies = ["alpha"]\n'
    )
    uv(project, "lock")
    project.wheel("alpha", "2.0")
    project.root = member
    assert versions(project) == {"alpha": "1.0"}


@pytest.mark.parametrize(("category", "extra"), [("cpu", "beta"), ("tpu", "delta")])
def test_extras_and_groups_that_the_project_requests_are_locked_too(
    project: Project, category: Category, extra: str
) -> None:
    names = ("alpha", "beta", "gamma", "delta")
    for name in names:
        project.wheel(name, "1.0")
    declare(project, "alpha", more=f'{OPTIONAL}{CHOSEN}[tool.kinetic.tpu]\nextras = ["other"]\n')
    source = project.root / "pyproject.toml"
    excluding = 'conflicts = [[{extra = "fast"}, {extra = "other"}]]\n'
    source.write_text(source.read_text() + excluding)
    uv(project, "lock")
    for name in names:
        project.wheel(name, "2.0")
    found = read_dependencies(source, environ=project.environ, category=category)
    assert versions(project, dependencies=found) == dict.fromkeys(("alpha", extra, "gamma"), "1.0")


def test_a_file_with_another_hash_than_that_of_the_lock_is_refused(project: Project) -> None:
    digest = project.wheel("alpha")
    project.require("alpha")
    uv(project, "pip", "compile", "-q", "requirements.txt", "-o", "pylock.toml")
    lock = project.root / "pylock.toml"
    lock.write_text(lock.read_text().replace(digest, "0" * 64))
    with pytest.raises(DependencyError, match=rf"pylock\.toml:\d+: the SHA-256 .* is {digest}"):
        project.lock(HERE)


def test_pylock_keeps_its_versions_beside_either_declaration(project: Project) -> None:
    project.wheel("alpha", "1.0")
    for write in (project.require, lambda *lines: declare(project, *lines)):
        write("alpha>=1")
        source = next(
            p for p in ("requirements.txt", "pyproject.toml") if (project.root / p).exists()
        )
        uv(project, "pip", "compile", "-q", source, "--format", "pylock.toml", "-o", "pylock.toml")
        project.wheel("alpha", "2.0")
        assert versions(project) == {"alpha": "1.0"}
        (project.packages / "alpha-2.0-py3-none-any.whl").unlink()
        (project.root / "pylock.toml").unlink()
        (project.root / source).unlink()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("alpha>=2", r"requirements\.txt:3: alpha>=2 is required, but .*pylock\.toml:3 has version 1\.0"),
        ("beta", r"requirements\.txt:3: beta is required, but the lock .*pylock\.toml does not contain beta"),
        ("alpha @ https://h.example/alpha-2.0-py3-none-any.whl", r"requirements\.txt:3: .* is stale"),
    ],
)  # fmt: skip
def test_a_stale_pylock_is_refused_by_the_line_that_it_does_not_fit(
    project: Project, line: str, message: str
) -> None:
    address = "https://h.example/alpha-1.0-py3-none-any.whl"
    entry = (
        f'archive = {{url = "{address}"' if "@" in line else f'wheels = [{{url = "{address}"'
    ) + f', hashes = {{sha256 = "{"0" * 64}"}}}}'
    (project.root / "pylock.toml").write_text(
        'lock-version = "1.0"\ncreated-by = "x"\n[[packages]]\nname = "alpha"\nversion = "1.0"\n'
        f"{entry}{'' if '@' in line else ']'}\n"
    )
    project.require(line)
    with pytest.raises(DependencyError, match=message):
        project.lock(HERE)


def test_extras_and_groups_that_the_project_requests_are_read_from_a_pylock(
    project: Project,
) -> None:
    rows = {
        "alpha": "'default' in dependency_groups",
        "beta": "'fast' in extras",
        "gamma": "'train' in dependency_groups",
        "delta": "'dev' in dependency_groups or 'other' in extras",
    }
    text = 'lock-version = "1.0"\ncreated-by = "pdm"\ndefault-groups = ["default"]\n'
    text += 'extras = ["fast", "other"]\ndependency-groups = ["train", "dev", "default"]\n'
    for name, marker in rows.items():
        digest = project.wheel(name)
        path = project.packages / f"{name}-1.0-py3-none-any.whl"
        text += (
            f'[[packages]]\nname = "{name}"\nversion = "1.0"\nmarker = "{marker}"\n'
            f'wheels = [{{path = "{path}", hashes = {{sha256 = "{digest}"}}}}]\n'
        )
        project.wheel(name, "2.0")
    (project.root / "pylock.toml").write_text(text)
    declare(project, "alpha", more=OPTIONAL + CHOSEN)
    assert versions(project) == {"alpha": "1.0", "beta": "1.0", "gamma": "1.0"}


def test_a_pylock_that_uv_exported_may_contain_the_project_itself(project: Project) -> None:
    project.wheel("alpha")
    build = '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
    declare(project, "alpha", more=build)
    uv(project, "export", "--format", "pylock.toml", "--output-file", "pylock.toml")
    (project.root / "uv.lock").unlink()
    assert "directory" in (project.root / "pylock.toml").read_text()
    project.wheel("alpha", "2.0")
    assert versions(project) == {"alpha": "1.0"}
