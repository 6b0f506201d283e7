"""The names under which our packages are published: one table, and everything that repeats it.

`[tool.kinetic.distributions]` in the root `pyproject.toml` is the one place. Change it there, then
run `python dev/distributions.py --write`. `--check` says what differs, and changes nothing.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = "[tool.kinetic.distributions]"
CONSTANT = Path("packages/kinetic-payload/src/kinetic_payload/distributions.py")


def main(arguments: list[str]) -> int:
    """Check or write; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--check", action="store_true", help="say which files differ")
    mode.add_argument("--write", action="store_true", help="make them say what the table says")
    parser.add_argument("--root", type=Path, default=ROOT, help="another checkout")
    options = parser.parse_args(arguments)
    changes = changed_files(options.root)
    for path, text in changes.items():
        if options.write:
            (options.root / path).write_text(text, encoding="utf-8")
        print(f"{'written' if options.write else 'differs'}: {path}")
    return 1 if changes and options.check else 0


def changed_files(root: Path) -> dict[Path, str]:
    """Return the new text of every file that does not say what the table says."""
    table = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    wanted: dict[str, str] = table["tool"]["kinetic"]["distributions"]
    projects = {
        source.parent.name: source.parents[2] / "pyproject.toml"
        for source in sorted(root.glob("packages/*/src/*/__init__.py"))
    }
    if wanted.keys() != projects.keys() or len(set(wanted.values())) != len(wanted):
        sys.exit(f"{TABLE} must give one name each to: {', '.join(sorted(projects))}")
    renamed = {_name(path): wanted[package] for package, path in projects.items()}
    texts = {
        path: _renamed(path, renamed) for path in [root / "pyproject.toml", *projects.values()]
    }
    texts[root / CONSTANT] = _constant(root / CONSTANT, wanted)
    return {
        path.relative_to(root): text
        for path, text in texts.items()
        if path.read_text(encoding="utf-8") != text
    }


def _name(project: Path) -> str:
    name = tomllib.loads(project.read_text(encoding="utf-8"))["project"]["name"]
    assert isinstance(name, str)
    return name


def _renamed(path: Path, names: Mapping[str, str]) -> str:
    """Rename in `name = "…"`, in requirements (a quoted text that begins so) and uv's sources."""
    old = "|".join(sorted(map(re.escape, names), key=len, reverse=True))
    # The project's own name, a requirement, a source; never a path, a script or a longer name.
    pattern = re.compile(
        rf'(?P<quote>")(?P<a>{old})(?=[\[<>=!~;@ "])|^(?P<b>{old})(?= = \{{ workspace = true \}})',
        re.MULTILINE,
    )

    def new(match: re.Match[str]) -> str:
        return f"{match['quote'] or ''}{names[match['a'] or match['b']]}"

    before, table, rest = path.read_text(encoding="utf-8").partition(TABLE)
    own, bracket, after = rest.partition("\n[")
    return pattern.sub(new, before) + table + own + bracket + pattern.sub(new, after)


def _constant(path: Path, wanted: Mapping[str, str]) -> str:
    rows = "".join(f'    "{package}": "{name}",\n' for package, name in sorted(wanted.items()))
    body = re.compile(r"(^DISTRIBUTIONS\b.*? = \{\n).*?(^\}$)", re.MULTILINE | re.DOTALL)
    return body.sub(lambda found: found[1] + rows + found[2], path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
