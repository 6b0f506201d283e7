"""The tables of modules in docs/where.md, generated from the first lines of the modules.

where.py --write    write the tables
where.py --check    fail if the tables are out of date
"""

from __future__ import annotations

import argparse
import ast
import difflib
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCUMENT = ROOT / "docs" / "where.md"
TABLE = re.compile(r"(<!-- modules of (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def main() -> int:
    """Write or check; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--write", action="store_true")
    mode.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    before = DOCUMENT.read_text(encoding="utf-8")
    after = TABLE.sub(lambda match: match[1] + table(match[2]) + match[3], before)
    if arguments.write:
        DOCUMENT.write_text(after, encoding="utf-8")
        return 0
    changes = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0)
    print("\n".join(changes) or "docs/where.md is up to date")
    return int(before != after)


def table(package: str) -> str:
    """Return the table of one package's modules, top layer first."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    core = next(c for c in contracts["contracts"] if c["id"] == "core")["source_modules"]
    rows = [
        f"| `{module}` | {'core ' * (module in core)}| {line} |"
        for module, line in _ordered(package, contracts["contracts"])
    ]
    return "\n".join(["| module | | |", "|---|---|---|", *rows]) + "\n"


def _ordered(module: str, contracts: list[dict[str, list[str]]]) -> Iterator[tuple[str, str]]:
    """Yield *module* and its children, in the order of its import contract, or else by name."""
    path = _file(module)
    yield module, _first_line(path)
    if path.name != "__init__.py":
        return
    names = {_name(child) for child in path.parent.iterdir()}
    children = sorted(name for name in names if name and name != "__init__")
    for contract in contracts:
        if contract.get("containers") == [module]:
            order = [name for layer in contract["layers"] for name in re.split(r" \| ", layer)]
            children.sort(key=lambda name: order.index(name) if name in order else -1)
    for child in children:
        yield from _ordered(f"{module}.{child}", contracts)


def _file(module: str) -> Path:
    folder = next(ROOT.glob(f"packages/*/src/{module.partition('.')[0]}")).parent
    path = folder.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _name(path: Path) -> str | None:
    if path.is_dir():
        return path.name if (path / "__init__.py").exists() else None
    return path.stem if path.suffix == ".py" else None


def _first_line(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n")[0].replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main())
