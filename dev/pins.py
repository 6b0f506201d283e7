"""Refresh the exact versions in `[tool.uv] constraint-dependencies` of the root `pyproject.toml`.

`python dev/pins.py` resolves all dependencies that the workspace declares, for all its Pythons and
systems, without the present pins. It writes the result: names, versions and markers, no addresses.
The next `uv lock` or `uv sync` updates `uv.lock`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PINS = re.compile(r"^constraint-dependencies = \[\n.*?^\]\n", re.MULTILINE | re.DOTALL)


def main() -> int:
    """Resolve, write, and print the changes."""
    path = ROOT / "pyproject.toml"
    text = path.read_text(encoding="utf-8")
    before = tomllib.loads(text)["tool"]["uv"].get("constraint-dependencies", [])
    after = resolved(text)
    path.write_text(pinned(text, after), encoding="utf-8")
    for pin in sorted({*before, *after}):
        if (pin in before) != (pin in after):
            print(f"{'+' if pin in after else '-'} {pin}")
    print(f"{len(after)} pins")
    return 0


def resolved(text: str) -> list[str]:
    """Return `name==version ; marker` of each package that the workspace needs, resolved without pins."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch)
        (copy / "pyproject.toml").write_text(PINS.sub("", text), encoding="utf-8")
        servers = ROOT / "tests" / "servers" / "pyproject.toml"
        for project in [*ROOT.glob("packages/*/pyproject.toml"), servers]:
            target = copy / project.relative_to(ROOT)
            target.parent.mkdir(parents=True)
            shutil.copy(project, target)
        uv(copy, "lock")
        return uv(
            copy, "export", "--frozen", "--all-packages", "--all-extras", "--all-groups",
            "--no-emit-workspace", "--no-emit-local", "--no-hashes", "--no-annotate", "--no-header",
        ).splitlines()  # fmt: skip


def pinned(text: str, pins: list[str]) -> str:
    """Return *text*, a `pyproject.toml`, with *pins* in place of its present ones."""
    # Quoted first and filled to lines afterwards: a pin with a marker has spaces, and is one line.
    quoted = [f'"{pin}",'.replace(" ", "\0") for pin in pins]
    rows = textwrap.fill(" ".join(quoted), 110, break_long_words=False, break_on_hyphens=False)
    rows = textwrap.indent(rows.replace("\0", " "), "  ")
    block = f"constraint-dependencies = [\n{rows}\n]\n"
    if PINS.search(text):
        return PINS.sub(lambda _: block, text)
    comment = "# Exact versions, refreshed by one command: python dev/pins.py\n"
    return text.replace("[tool.uv]\n", f"[tool.uv]\n{comment}{block}", 1)


def uv(folder: Path, *arguments: str) -> str:
    """Run uv in *folder* without the user's own configuration; return what it printed."""
    command = [program(), "--no-config", "-q", *arguments]
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"uv {arguments[0]} failed; nothing was written.")
    return done.stdout


def program() -> str:
    """Return the path of uv: in the checkout, else in this Python's environment, else on PATH."""
    local = ROOT / ".tools" / "bin" / "uv"
    if local.is_file():
        return str(local)
    try:
        from uv import find_uv_bin

        return find_uv_bin()
    except (ImportError, FileNotFoundError):
        return shutil.which("uv") or sys.exit("No uv was found: pip install uv")


if __name__ == "__main__":
    sys.exit(main())
