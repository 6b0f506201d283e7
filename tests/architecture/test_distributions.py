"""Our six names stand in one table, and changing that table changes everything that repeats them."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from kinetic_images.dependencies import find_dependencies

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "dev" / "distributions.py"
SERVERS = Path("tests/servers/pyproject.toml")
CONSTANT = Path("packages/kinetic-payload/src/kinetic_payload/distributions.py")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def copied(folder: Path) -> Path:
    """Copy what a rename may touch."""
    shutil.copy(ROOT / "pyproject.toml", folder)
    for package in ROOT.glob("packages/*/src/*/__init__.py"):
        target = folder / package.relative_to(ROOT)
        target.parent.mkdir(parents=True)
        target.touch()
        shutil.copy(package.parents[2] / "pyproject.toml", target.parents[2])
    shutil.copy(ROOT / CONSTANT, folder / CONSTANT)
    (folder / SERVERS).parent.mkdir(parents=True)
    shutil.copy(ROOT / SERVERS, folder / SERVERS)
    return folder


def table(path: Path) -> dict[str, object]:
    return tomllib.loads(path.read_text())


def test_all_files_agree_with_the_table_of_names() -> None:
    done = run("--check")
    assert done.returncode == 0, f"run: python dev/distributions.py --write\n{done.stdout}"


def test_a_rename_in_the_table_reaches_every_file_and_back(tmp_path: Path) -> None:
    root = copied(tmp_path)
    before = {path: path.read_text() for path in root.rglob("*") if path.is_file()}
    names = table(root / "pyproject.toml")["tool"]["kinetic-workspace"]["distributions"]  # type: ignore[index]
    head, mark, rest = (
        (root / "pyproject.toml").read_text().partition("[tool.kinetic-workspace.distributions]")
    )
    own, bracket, tail = rest.partition("\n[")
    for name in names.values():
        own = own.replace(f'"{name}"', f'"acme-{name}"')
    (root / "pyproject.toml").write_text(head + mark + own + bracket + tail)

    assert run("--check", "--root", str(root)).returncode == 1
    assert run("--write", "--root", str(root)).returncode == 0
    assert run("--check", "--root", str(root)).returncode == 0
    renamed = {f"acme-{name}" for name in names.values()}
    projects = [table(path)["project"] for path in root.glob("packages/*/pyproject.toml")]
    assert {project["name"] for project in projects} == renamed  # type: ignore[index]
    quoted = tuple(f'"{name}{end}' for name in names.values() for end in '"[<>=')
    for path in root.rglob("pyproject.toml"):
        lines = [line for line in path.read_text().splitlines() if any(q in line for q in quoted)]
        assert lines == [], path
    for name in renamed:
        assert f'"{name}"' in (root / CONSTANT).read_text()
    sources = set(table(root / "pyproject.toml")["tool"]["uv"]["sources"])  # type: ignore[index]
    assert sources == renamed | {"kinetic-servers"}

    (root / "pyproject.toml").write_text((root / "pyproject.toml").read_text().replace("acme-", ""))
    run("--write", "--root", str(root))
    assert {path: path.read_text() for path in before} == before


def test_jobs_of_this_workspace_get_the_dependencies_of_its_members(tmp_path: Path) -> None:
    root = copied(tmp_path)
    with (root / "pyproject.toml").open("a") as file:
        file.write('\n[tool.kinetic]\ngroups = ["dev"]\n')

    found = find_dependencies(root, environ={})

    found.refuse_unusable("3.12")
    names = {requirement.name for requirement in found.requirements}
    assert {"pytest", "msgspec", "packaging", "kubernetes", "click", "aiohttp"} <= names
