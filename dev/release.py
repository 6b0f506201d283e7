"""Release packages: set versions, date changelogs, build distributions, and check each in an empty environment.

    python dev/release.py kinetic-runner=0.2.0 kinetic=0.1.1

The checkout must be clean. A released package requires the present versions of Kinetic's other packages. Those
of them that are not named must be as in the commit of their tag, such as `kinetic-payload-v0.1.0`. Nothing is
committed, tagged or uploaded: the commands for that are printed. If a check fails, the files are as before.
"""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).resolve().parent.parent
UV = ROOT / ".tools" / "bin" / "uv"
PYTHON = "3.13"


def main(arguments: list[str]) -> int:
    """Release what *arguments* name; return the exit code."""
    if not arguments:
        sys.exit(__doc__)
    if subprocess.check_output(["git", "status", "--porcelain"], cwd=ROOT):
        sys.exit("The checkout has changes. Commit them first.")
    wanted = {name: version for name, _, version in (each.partition("=") for each in arguments)}
    changes = changed_files(ROOT, wanted, f"{datetime.now(UTC):%Y-%m-%d}")
    check_others(ROOT, wanted)
    shutil.rmtree(ROOT / "dist", ignore_errors=True)
    commands: list[list[str | Path]] = [[UV, "build", "--all-packages", "--out-dir", "dist", "-q"]]
    commands += [
        [sys.executable, ROOT / ".ci/alone.py", PYTHON, UV, name] for name in sorted(wanted)
    ]
    try:
        for path, text in changes.items():
            path.write_text(text, encoding="utf-8")
        for command in commands:
            subprocess.check_call(command, cwd=ROOT)
    except BaseException:
        subprocess.check_call(["git", "checkout", "-q", "--", *changes], cwd=ROOT)
        print("Nothing was released.", file=sys.stderr)
        raise
    versions = {name: Version(text) for name, text in wanted.items()}
    tags = [f"{name}-v{version}" for name, version in versions.items()]
    built = [f"dist/{name.replace('-', '_')}-{version}*" for name, version in versions.items()]
    print(f"The distributions are built and checked: {' '.join(built)}")
    print(
        f"git commit -am 'Release {' '.join(tags)}' && {' && '.join(f'git tag {t}' for t in tags)}"
    )
    return 0


def changed_files(root: Path, wanted: Mapping[str, str], date: str) -> dict[Path, str]:
    """Return the new text of every file that changes if the *wanted* versions are released on *date*."""
    tables = _tables(root)
    versions = {name: Version(table["version"]) for name, table in tables.items()}
    changes: dict[Path, str] = {}
    for name, text in wanted.items():
        if name not in tables:
            sys.exit(f"There is no package {name!r}. Packages: {', '.join(sorted(tables))}.")
        try:
            new = Version(text)
        except InvalidVersion:
            sys.exit(f"{name}={text}: that is no version.")
        changelog = root / "packages" / name / "CHANGELOG.md"
        heading, log = f"\n## {new} (unreleased)\n", changelog.read_text(encoding="utf-8")
        if heading not in log:
            sys.exit(f"{changelog.relative_to(root)} has no section {heading.strip()!r}.")
        changes[changelog] = log.replace(heading, f"\n## {new} ({date})\n")
        versions[name] = new
    for name in tables:
        own = _own_requirements(tables, name)
        if name not in wanted:
            for line in own:
                needed = Requirement(line)
                if versions[needed.name] not in needed.specifier:
                    sys.exit(f"{name} requires {line}: release it as well.")
            continue
        path = root / "packages" / name / "pyproject.toml"
        text = path.read_text(encoding="utf-8")
        for line in own:
            needed = Requirement(line)
            extra = f"[{','.join(sorted(needed.extras))}]" if needed.extras else ""
            text = text.replace(
                f'"{line}"', f'"{needed.name}{extra}{_range(versions[needed.name])}"'
            )
        changes[path] = _with_version(text, "version", versions[name])
        init = next(path.parent.glob("src/*/__init__.py"))
        changes[init] = _with_version(
            init.read_text(encoding="utf-8"), "__version__", versions[name]
        )
    return changes


def check_others(root: Path, wanted: Collection[str]) -> None:
    """Exit if a *wanted* package needs another one that has changed since its own release."""
    tables = _tables(root)
    needed = {*wanted}
    for _ in tables:
        needed |= {Requirement(r).name for name in needed for r in _own_requirements(tables, name)}
    for name in sorted(needed - {*wanted}):
        tag, folder = f"{name}-v{tables[name]['version']}", f"packages/{name}"
        command = ["git", "diff", "--quiet", tag, "--", f"{folder}/src", f"{folder}/pyproject.toml"]
        if subprocess.call(command, cwd=root, stderr=subprocess.DEVNULL) != 0:
            sys.exit(f"{name} differs from {tag}, or there is no such tag: release it as well.")


def _tables(root: Path) -> dict[str, dict[str, Any]]:
    """Return the table `project` of each package."""
    return {
        path.parent.name: tomllib.loads(path.read_text(encoding="utf-8"))["project"]
        for path in root.glob("packages/*/pyproject.toml")
    }


def _own_requirements(tables: Mapping[str, dict[str, Any]], name: str) -> list[str]:
    """Return the requirements of a package that name another package of Kinetic."""
    extras = tables[name].get("optional-dependencies", {}).values()
    lines = itertools.chain(tables[name]["dependencies"], *extras)
    return [line for line in lines if Requirement(line).name in tables]


def _range(version: Version) -> str:
    """Return the requirement of *version*, or of a later one with the same interface."""
    major, minor = version.major, version.minor
    return f">={version},<{major}.{minor + 1}" if major == 0 else f">={version},<{major + 1}"


def _with_version(text: str, name: str, version: Version) -> str:
    return re.sub(rf'^{name} = "[^"]*"', f'{name} = "{version}"', text, count=1, flags=re.MULTILINE)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
