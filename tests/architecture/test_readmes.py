"""Every package shows how it is used alone, in about ten lines, and its own tests run them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = sorted(path.parent.name for path in ROOT.glob("packages/*/pyproject.toml"))
IN_PYTHON = [name for name in PACKAGES if name != "kinetic-cli"]  # which is used from a shell


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_has_a_readme_a_changelog_and_a_test_that_runs_its_example(package: str) -> None:
    folder = ROOT / "packages" / package
    readme = (folder / "README.md").read_text(encoding="utf-8")

    assert readme.startswith(f"# {package}\n")
    assert (folder / "CHANGELOG.md").read_text(encoding="utf-8").startswith("# Changelog of ")
    assert (ROOT / "tests" / package.replace("-", "_") / "test_readme.py").is_file()


@pytest.mark.parametrize("package", IN_PYTHON)
def test_its_example_is_short_and_imports_no_package_above_its_own(package: str) -> None:
    readme = (ROOT / "packages" / package / "README.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    lines = [line for line in example.splitlines() if line.strip()]
    imports = [line for line in lines if re.match(r"(from|import) ", line)]
    ours = set(re.findall(r"^(?:from|import) (kinetic\w*)", example, re.MULTILINE))

    assert len(lines) - len(imports) <= 11, "about ten lines"
    assert "# → " in example, "say what it prints"
    assert ours <= {package.replace("-", "_"), "kinetic_payload"}


def test_every_package_is_in_the_table_of_the_main_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")

    assert [name for name in PACKAGES if f"(packages/{name}/README.md)" not in readme] == []


def test_links_between_our_documents_lead_somewhere() -> None:
    documents = [
        path
        for pattern in ("*.md", "llms.txt", "docs/**/*.md", "packages/*/*.md")
        for path in ROOT.glob(pattern)
    ]
    broken = [
        f"{document.relative_to(ROOT)}: {target}"
        for document in documents
        for target in re.findall(
            r"\]\(([^)#\s]+)(?:#[^)]*)?\)", document.read_text(encoding="utf-8")
        )
        if "://" not in target and not (document.parent / target).exists()
    ]

    assert broken == []
