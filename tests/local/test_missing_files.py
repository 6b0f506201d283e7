"""Modules and files that a job did not find: the note names the place, or the rule, and the way to ship them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kinetic.jobs.missing_files import Project, note_on
from kinetic_payload.errors import KineticError
from kinetic_payload.project.snapshot import take_snapshot


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project; the modules there and beside it must not be imported to find them."""
    root = tmp_path / "project"
    for name in (
        "project/pack/secret_module.py",
        "project/deep/module_elsewhere.py",
        "shared/module_outside.py",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("raise RuntimeError('imported here')\n")
    (root / "pack" / "__init__.py").touch()
    (root / ".gitignore").write_text("secret_module.py\n")
    for folder in (root, root / "deep", tmp_path / "shared"):
        monkeypatch.syspath_prepend(folder)
    return root


def note(name: str, project: Project | None) -> str | None:
    return note_on(ModuleNotFoundError(f"No module named {name!r}", name=name), project)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        (
            "module_outside",
            [
                "lies at {above}/shared/module_outside.py on this machine, outside the project",
                "that was shipped, {above}/project.",
                "move it into the project, import it at the top of the script or notebook",
                "set KINETIC_PACKAGE_ROOT={above}, or install it",
            ],
        ),
        (
            "pack.secret_module",
            [
                "leaves out 'pack/secret_module.py' (.gitignore:1: secret_module.py)",
                "!/pack/secret_module.py into {above}/project/.kineticignore",
            ],
        ),
        ("module_elsewhere", ["{above}/project/deep/module_elsewhere.py", "not on sys.path"]),
        ("pytest", [f"(pytest {pytest.__version__}) and not in the job's environment"]),
        ("json", ["part of this machine's Python, but not of the job's Python"]),
    ],
)
def test_a_note_names_the_place_of_the_module_and_how_to_ship_it(
    root: Path, name: str, parts: list[str]
) -> None:
    found = note(name, Project(root, left_out=take_snapshot(root).left_out))

    assert found is not None
    for part in parts:
        assert part.format(above=root.parent) in found


def test_without_knowledge_of_the_project_a_note_says_less(root: Path) -> None:
    assert "into the job's project" in str(note("module_outside", None))
    assert "no files were shipped" in str(note("module_outside", Project(None)))
    assert note("no_such_module_of_anyone", None) is None


def test_packages_of_an_image_are_not_those_of_the_project(root: Path) -> None:
    assert "install it in the image us/mine:1" in str(
        note("pytest", Project(root, image="us/mine:1"))
    )


def test_a_missing_module_is_found_among_causes_and_in_the_text_of_a_failure(root: Path) -> None:
    wrapped = RuntimeError("no module")
    wrapped.__cause__ = ModuleNotFoundError(name="module_outside")
    failure = KineticError("It failed: No module named 'module_outside'.")

    for error in (wrapped, failure):
        assert "module_outside" in str(note_on(error, None))


def test_a_job_without_a_module_fails_with_the_note_and_its_advice_ships_the_module(
    project: Any,
) -> None:
    place = project.write("../shared/helper.py", "VALUE = 42\n")
    shared = str(place.resolve().parent)
    project.write(
        "main.py",
        """
        import kinetic

        @kinetic.run(accelerator="cpu")
        def work():
            import helper
            return helper.VALUE

        print(work())
        """,
    )

    failed = project.run("main.py", PYTHONPATH=shared)

    assert f"The module 'helper' lies at {shared}/helper.py on this machine" in failed.stderr
    advice = re.search(r"KINETIC_PACKAGE_ROOT=([^, ]+)", failed.stderr)
    assert advice
    assert project.run("main.py", PYTHONPATH=shared, KINETIC_PACKAGE_ROOT=advice[1]).stdout == (
        "42\n"
    )
    attach = "import kinetic; [job] = kinetic.list_jobs(); job.result()"
    elsewhere = project.run("-c", attach, PYTHONPATH=shared)
    assert f"'helper' lies at {shared}/helper.py on this machine. To ship it" in elsewhere.stderr


def test_a_file_that_the_snapshot_left_out_is_named_with_its_rule_and_the_advice_ships_it(
    project: Any,
) -> None:
    project.write(".gitignore", "outputs/\n*.csv\n")
    project.write("tables/day.csv", "1,2")
    project.write("outputs/earlier/model", "old")
    project.write("run/here", "")
    project.write(
        "main.py",
        """
        import os, pathlib, kinetic

        @kinetic.run(accelerator="cpu")
        def read():
            return pathlib.Path("../tables/day.csv").read_text()

        @kinetic.run(accelerator="cpu")
        def write():
            (pathlib.Path(__file__).parent / "outputs/model").write_text("new")

        os.chdir("run")
        for function in (read, write):
            try:
                print(function())
            except FileNotFoundError as error:
                print(error.__notes__[-1])
        """,
    )

    printed = project.output("main.py").splitlines()

    read, write = (line for line in printed if line.startswith("The snapshot of the project"))
    assert "leaves out 'tables/day.csv' (.gitignore:2: *.csv)." in read
    assert "leaves out 'outputs' (.gitignore:1: outputs/)." in write
    assert "To write there, create the folder in the function." in write
    advice = re.search(r"write the line (\S+) into \S+/.kineticignore", read)
    assert advice
    project.write(".kineticignore", advice[1])
    assert "1,2" in project.output("main.py").splitlines()
