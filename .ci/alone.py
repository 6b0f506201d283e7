"""Run tests in a fresh environment that contains only declared dependencies.

    alone.py VERSION UV PACKAGE    import all modules of the package, and run its README's example
    alone.py VERSION UV TESTS...   run these files and folders with all packages

If this machine has no Python VERSION, the first form uses the Python that runs this script, and the
second form skips the tests. Kinetic's own packages are installed from the wheels in dist/, by path:
on the public index, other projects have their names.
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
# The other extras of `kinetic` are Kinetic's other packages, or are for debugging only.
EXTRAS = {"kinetic": "[clusters]", "kinetic-cli": "[dashboard]", "kinetic-payload": "[gcs]"}
REMOVED_VARIABLES = ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
IMPORT_ALL = """
import importlib, pkgutil, sys
package = importlib.import_module(sys.argv[1])
for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
    if not found.name.endswith("__main__"):
        importlib.import_module(found.name)
"""
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if name not in REMOVED_VARIABLES},
    "UV_PYTHON_DOWNLOADS": "never",
}


def needed(distribution: str) -> list[str]:
    """Return the package and Kinetic's other packages that it requires, directly or indirectly."""
    table = tomllib.loads((ROOT / "packages" / distribution / "pyproject.toml").read_text())
    direct = [re.split(r"[^\w-]", line)[0] for line in table["project"]["dependencies"]]
    required = [name for package in direct if package in PACKAGES for name in needed(package)]
    return sorted({distribution, *required})


def wheel(distribution: str, *, extras: bool) -> str:
    """Return the requirement for the wheel that `uv build` made of a package, with its *extras*."""
    (found,) = (ROOT / "dist").glob(f"{distribution.replace('-', '_')}-[0-9]*.whl")
    chosen = EXTRAS.get(distribution, "") if extras else ""
    return f"{distribution}{chosen} @ {found.as_uri()}" if chosen else str(found)


def python_of(version: str) -> str | None:
    """Return a Python of this *version* that starts; the shim of a version manager may not."""
    found = [shutil.which(f"python{version}")]
    for manager in (os.environ.get("PYENV_ROOT"), Path.home() / ".pyenv"):
        if manager:
            found += map(str, Path(manager, "versions").glob(f"{version}.*/bin/python{version}"))
    code = ("-c", "import sys; print(sys.executable)")
    for candidate in filter(None, found):
        done = subprocess.run([candidate, *code], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return done.stdout.strip()
    return None


def main(arguments: list[str]) -> int:
    """Create the environment, run the tests, remove the environment; return the exit code."""
    version, uv, *tests = arguments
    python = python_of(version)
    root = tomllib.loads((ROOT / "pyproject.toml").read_text())
    testing = root["dependency-groups"]["test"]
    if tests[0] in PACKAGES:
        (distribution,) = tests
        python = python or sys.executable  # A package's dependencies are the same on each Python.
        wanted, tested = needed(distribution), [distribution]
        imported = distribution.replace("-", "_")
        testing = [each for each in testing if each.startswith("pytest")]
        tests = ["--override-ini=addopts=", f"tests/{imported}/test_readme.py"]
    elif python:
        wanted, tested, imported = PACKAGES, PACKAGES, "kinetic"
    else:
        print(f"Skipped: this machine has no Python {version}.")
        return 0
    # In dist/, so that the next `.ci/run` removes it if this run is killed, or if a process still writes there.
    with tempfile.TemporaryDirectory(
        prefix="alone-", dir=ROOT / "dist", ignore_cleanup_errors=True
    ) as folder:
        constraints = Path(folder, "constraints.txt")
        constraints.write_text("\n".join(root["tool"]["uv"]["constraint-dependencies"]))
        interpreter = f"{folder}/env/bin/python"
        install = f"{uv} pip install -q --python {interpreter} -c {constraints}"
        wheels = [wheel(name, extras=name in tested) for name in wanted]
        for command in (
            [uv, "venv", "-q", "--python", python, f"{folder}/env"],
            [*install.split(), *wheels, *testing],
            [interpreter, "-c", IMPORT_ALL, imported],
            [interpreter, "-m", "pytest", "-q", *tests],
        ):
            code = subprocess.call(command, env=ENVIRONMENT, cwd=ROOT)
            if code:
                return code
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
