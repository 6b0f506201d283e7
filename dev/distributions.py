"""Distribution names: update every file that repeats the table of names.

The table is `[tool.kinetic-workspace.distributions]` in the root `pyproject.toml`. Change a name there, then run
`python dev/distributions.py --write`. `--check` lists the files that differ, and changes nothing.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = "[tool.kinetic-workspace.distributions]"
SERVERS = Path("tests/servers/pyproject.toml")
CONSTANT = Path("packages/kinetic-payload/src/kinetic_payload/distributions.py")


def main(arguments: list[str]) -> int:
    """Check or write; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--check", action="store_true", help="list the files that differ")
    mode.add_argument("--write", action="store_true", help="update these files from the table")
    parser.add_argument("--root", type=Path, default=ROOT, help="another checkout")
    options = parser.parse_args(arguments)
    changes = changed_files(options.root)
    for path, text in changes.items():
        if options.write:
            (options.root / path).write_text(text, encoding="utf-8")
        print(f"{'written' if options.write else 'differs'}: {path}")
    return 1 if changes and options.check else 0


def changed_files(root: Path) -> dict[Path, str]:
    """Return the new text of every file that differs from the table."""
    table = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    wanted: dict[str, str] = table["tool"]["kinetic-workspace"]["distributions"]
    projects = {
        source.parent.name: source.parents[2] / "pyproject.toml"
        for source in sorted(root.glob("packages/*/src/*/__init__.py"))
    }
    if wanted.keys() != projects.keys() or len(set(wanted.values())) != len(wanted):
        sys.exit(f"{TABLE} must have a different name for each of: {', '.join(sorted(projects))}")
    new_names = {_name(path): wanted[package] for package, path in projects.items()}
    texts = {
        path: _with_new_names(path, new_names)
        for path in [root / "pyproject.toml", root / SERVERS, *projects.values()]
    }
    texts[root / CONSTANT] = _with_new_constant(root / CONSTANT, wanted)
    return {
        path.relative_to(root): text
        for path, text in texts.items()
        if path.read_text(encoding="utf-8") != text
    }


def _name(project: Path) -> str:
    name = tomllib.loads(project.read_text(encoding="utf-8"))["project"]["name"]
    assert isinstance(name, str)
    return name


def _with_new_names(path: Path, names: Mapping[str, str]) -> str:
    """Return the text of *path* with new names in `name = "…"`, in requirements and in uv's sources."""
    old = "|".join(sorted(map(re.escape, names), key=len, reverse=True))
    # Match the project's own name, a requirement or a source, but no path, script or longer name.
    pattern = re.compile(
        rf'(?P<quote>")(?P<a>{old})(?=[\[<>=!~;@ "])|^(?P<b>{old})(?= = \{{ workspace = true \}})',
        re.MULTILINE,
    )

    def new(match: re.Match[str]) -> str:
        return f"{match['quote'] or ''}{names[match['a'] or match['b']]}"

    before, table, rest = path.read_text(encoding="utf-8").partition(TABLE)
    own, bracket, after = rest.partition("\n[")
    return pattern.sub(new, before) + table + own + bracket + pattern.sub(new, after)


def _with_new_constant(path: Path, wanted: Mapping[str, str]) -> str:
    """Return the text of the module *path* with the *wanted* names in its constant."""
    rows = "".join(f'    "{package}": "{name}",\n' for package, name in sorted(wanted.items()))
    body = re.compile(r"(^DISTRIBUTIONS\b.*? = \{\n).*?(^\}$)", re.MULTILINE | re.DOTALL)
    return body.sub(lambda found: found[1] + rows + found[2], path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
