"""What a release changes and refuses. The whole command also builds and checks; it is run by hand."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "dev"))

from release import changed_files, check_others  # noqa: E402


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Everything that a release reads, with a section for the next version of each package."""
    for folder in ROOT.glob("packages/*"):
        (init,) = folder.glob("src/*/__init__.py")
        for path in (folder / "pyproject.toml", init):
            target = tmp_path / path.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
        log = tmp_path / folder.relative_to(ROOT) / "CHANGELOG.md"
        log.write_text(f"# Changelog of {folder.name}\n\n## 0.9.0 (unreleased)\n\n- New.\n")
    return tmp_path


def test_a_release_sets_versions_requirements_and_dates(checkout: Path) -> None:
    names = [folder.name for folder in checkout.glob("packages/*")]
    for path, text in changed_files(checkout, dict.fromkeys(names, "0.9.0"), "2026-12-24").items():
        path.write_text(text)

    for folder in checkout.glob("packages/*"):
        (init,) = folder.glob("src/*/__init__.py")
        assert '\n__version__ = "0.9.0"\n' in init.read_text()
        assert "## 0.9.0 (2026-12-24)" in (folder / "CHANGELOG.md").read_text()
    project = (checkout / "packages/kinetic/pyproject.toml").read_text()
    assert '\nversion = "0.9.0"\n' in project
    assert '"kinetic-payload[gcs]>=0.9.0,<0.10"' in project
    assert '"kinetic-cli>=0.9.0,<0.10"' in project
    assert '"psutil>=6"' in project


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"kinetic-payload": "0.9.0"}, "release it as well"),
        ({"kinetic-cli": "0.8.0"}, r"no section '## 0\.8\.0 \(unreleased\)'"),
        ({"kinetic-cli": "next"}, "that is no version"),
        ({"numpy": "1.0"}, "There is no package 'numpy'"),
    ],
)
def test_a_release_that_cannot_be_installed_or_explained_is_refused(
    checkout: Path, wanted: dict[str, str], message: str
) -> None:
    with pytest.raises(SystemExit, match=message):
        changed_files(checkout, wanted, "2026-12-24")


def test_a_needed_package_that_has_changed_since_its_release_is_named_too(checkout: Path) -> None:
    author = ("-c", "user.name=me", "-c", "user.email=me@example.com")
    for command in (["init", "-q"], ["add", "."], [*author, "commit", "-qm", "all"]):
        subprocess.check_call(["git", *command], cwd=checkout)
    with pytest.raises(SystemExit, match=r"kinetic-payload.*no such tag"):
        check_others(checkout, {"kinetic-runner"})
    subprocess.check_call(["git", "tag", "kinetic-payload-v0.1.0"], cwd=checkout)
    check_others(checkout, {"kinetic-runner"})

    (checkout / "packages/kinetic-payload/src/kinetic_payload/__init__.py").write_text("# Changed")

    with pytest.raises(SystemExit, match=r"kinetic-payload differs from kinetic-payload-v0\.1\.0"):
        check_others(checkout, {"kinetic-runner"})
    check_others(checkout, {"kinetic-runner", "kinetic-payload"})
