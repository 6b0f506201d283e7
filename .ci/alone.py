"""Run tests in a fresh environment that holds only what was declared.

    alone.py PACKAGE UV              the package's tests with its own dependencies
    alone.py --python VERSION UV     all unit tests and one local life on another Python

Ours come from the wheels in dist/, given by path: their names on the public index are others'.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = {
    **{
        k: v
        for k, v in os.environ.items()
        if k not in ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
    },
    "UV_PYTHON_DOWNLOADS": "never",
}


def project(distribution: str) -> dict[str, object]:
    """Return the `[project]` table of one of our packages."""
    return tomllib.loads((ROOT / "packages" / distribution / "pyproject.toml").read_text())[
        "project"
    ]


def closure(distribution: str) -> list[str]:
    """Return the package and those of ours that it declares, and they declare."""
    ours = {path.name for path in (ROOT / "packages").iterdir()}
    names, todo = [], [distribution]
    while todo:
        name = todo.pop()
        if name in names:
            continue
        names.append(name)
        for line in project(name)["dependencies"]:
            wanted = line.split(">")[0].split("[")[0].strip()
            if wanted in ours:
                todo.append(wanted)
    return names


def wheel(distribution: str) -> str:
    """Return the wheel that `uv build` made of a package."""
    (found,) = (ROOT / "dist").glob(f"{distribution.replace('-', '_')}-[0-9]*.whl")
    return str(found)


def main(arguments: list[str]) -> int:
    """Make the environment, run the tests, and leave nothing."""
    root = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = root["dependency-groups"]
    extra: list[str] = []
    if arguments[0] == "--python":
        _, python, uv = arguments
        wheels = [wheel(path.name) for path in sorted((ROOT / "packages").iterdir())]
        tests = [
            f"tests/{p}"
            for p in (
                "kinetic_payload",
                "kinetic_images",
                "kinetic_k8s",
                "kinetic_runner",
                "kinetic",
                "kinetic_cli",
            )
        ]
        tests += ["tests/local/test_life.py"]
    else:
        distribution, uv = arguments
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        wheels = [wheel(name) for name in closure(distribution)]
        tests = [f"tests/{distribution.replace('-', '_')}"]
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        constraints = home / "constraints.txt"
        constraints.write_text("\n".join(root["tool"]["uv"].get("constraint-dependencies", [])))
        run = lambda *command: subprocess.run(command, env=ENVIRONMENT, check=True, cwd=ROOT)  # noqa: E731
        run(uv, "venv", "-q", "--python", python, str(home / "env"))
        interpreter = str(home / "env" / "bin" / "python")
        run(
            uv,
            "pip",
            "install",
            "-q",
            "--compile-bytecode",
            "--python",
            interpreter,
            "-c",
            str(constraints),
            *wheels,
            *groups["test"],
            *extra,
        )
        command = [interpreter, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", *tests]
        return subprocess.call(command, env=ENVIRONMENT, cwd=ROOT)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
