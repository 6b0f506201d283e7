"""Find what no commit may contain: lock files, hosts of package registries, paths of one machine, stray files."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

TOP_LEVEL = {
    ".ci",
    ".gitignore",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "README.md",
    "SECURITY.md",
    "benchmarks",
    "dev",
    "docs",
    "examples",
    "llms.txt",
    "mkdocs.yml",
    "packages",
    "pyproject.toml",
    "tests",
}
FORBIDDEN = {
    "the host of a package registry": re.compile(r"\b(?:files\.)?(?:pypi|pythonhosted)\.org\b"),
    "a path of one machine": re.compile(r"(?<![\w.~$}/-])/(?:root|farm|home/\w+)/"),
}


def main() -> int:
    """Check every tracked file; return the exit code."""
    names = subprocess.run(
        ["git", "ls-files", "-z"], check=True, capture_output=True, text=True
    ).stdout
    problems = []
    for name in filter(None, names.split("\0")):
        if name.endswith("uv.lock"):
            problems.append(f"{name}: a lock file names hosts and is generated, never committed")
        path = Path(name)
        if path.parts[0] not in TOP_LEVEL:
            problems.append(f"{name}: {path.parts[0]} is not one of the names at the top")
        if name == ".ci/hygiene.py" or not path.is_file():
            continue
        text = path.read_text(errors="replace")
        if path.name == "LICENSE" and text != Path("LICENSE").read_text():
            # A copy, since uv refuses links in archives.
            problems.append(f"{name}: differs from the LICENSE at the top")
        for number, line in enumerate(text.splitlines(), 1):
            problems += [
                f"{name}:{number}: {what}" for what, rule in FORBIDDEN.items() if rule.search(line)
            ]
    print("\n".join(problems) or "clean")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
