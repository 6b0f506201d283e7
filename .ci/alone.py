"""Run tests in a fresh environment that holds only what was declared.

    alone.py VERSION UV PACKAGE    the package's tests with its own dependencies; without that Python, on ours
    alone.py VERSION UV TESTS...   these files and folders with all packages; without that Python, nothing

Ours come from the wheels in dist/, given by path: their names on the public index are others'.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = sorted(path.name for path in (ROOT / "packages").iterdir())
NOT_TAKEN_ALONG = ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if name not in NOT_TAKEN_ALONG},
    "UV_PYTHON_DOWNLOADS": "never",
}


def needed(distribution: str) -> list[str]:
    """Return the package, and what of ours it declares, directly or not."""
    table = tomllib.loads((ROOT / "packages" / distribution / "pyproject.toml").read_text())
    named = [re.split(r"[^\w-]", line)[0] for line in table["project"]["dependencies"]]
    below = [name for ours in named if ours in PACKAGES for name in needed(ours)]
    return sorted({distribution, *below})


def wheel(distribution: str, *, extras: bool) -> str:
    """Return the wheel that `uv build` made of a package; its own extras are declared as well."""
    (found,) = (ROOT / "dist").glob(f"{distribution.replace('-', '_')}-[0-9]*.whl")
    # The facade's are other packages of ours, or for debugging alone.
    with_extras = extras and distribution == "kinetic-payload"
    return f"{distribution}[gcs,testing] @ {found.as_uri()}" if with_extras else str(found)


def python_of(version: str) -> str | None:
    """Return a Python of this *version* that starts: a version manager's shim may name one that does not."""
    found = [shutil.which(f"python{version}")]
    for manager in (os.environ.get("PYENV_ROOT"), Path.home() / ".pyenv"):
        if manager:
            found += map(str, Path(manager, "versions").glob(f"{version}.*/bin/python{version}"))
    asking = ("-c", "import sys; print(sys.executable)")
    for candidate in filter(None, found):
        said = subprocess.run([candidate, *asking], capture_output=True, text=True, check=False)
        if said.returncode == 0:
            return said.stdout.strip()
    return None


def main(arguments: list[str]) -> int:
    """Make the environment, run the tests, and leave nothing."""
    version, uv, *tests = arguments
    python = python_of(version)
    if tests[0] in PACKAGES:
        (distribution,) = tests
        python = python or sys.executable  # What a package declares is the same on each Python.
        wanted, mine = needed(distribution), [distribution]
        tests = [f"tests/{distribution.replace('-', '_')}"]
    elif python:
        wanted = mine = PACKAGES
    else:
        print(f"Skipped: this machine has no Python {version}.")
        return 0
    root = tomllib.loads((ROOT / "pyproject.toml").read_text())
    # In dist/: the next `.ci/run` removes what a killed one left, or what a process still writes.
    with tempfile.TemporaryDirectory(
        prefix="alone-", dir=ROOT / "dist", ignore_cleanup_errors=True
    ) as folder:
        constraints = Path(folder, "constraints.txt")
        constraints.write_text("\n".join(root["tool"]["uv"]["constraint-dependencies"]))
        interpreter = f"{folder}/env/bin/python"
        install = f"{uv} pip install -q --compile-bytecode --python {interpreter} -c {constraints}"
        pytest = f"{interpreter} -m pytest -q"
        for command in (
            [uv, "venv", "-q", "--python", python, f"{folder}/env"],
            [
                *install.split(),
                *(wheel(name, extras=name in mine) for name in wanted),
                *root["dependency-groups"]["test"],
            ],
            [*pytest.split(), *tests],
        ):
            code = subprocess.call(command, env=ENVIRONMENT, cwd=ROOT)
            if code:
                return code
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
