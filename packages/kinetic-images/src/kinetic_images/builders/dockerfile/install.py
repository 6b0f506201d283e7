"""Install a `pylock.toml` into a folder, inside a container build.

This file is copied into build contexts and runs there: `python3 -I install.py FOLDER PREFIX X.Y`. It uses
only the standard library. FOLDER contains `install/` (the inputs), `cache/`, and the secrets `ca` and `netrc`
if they were given. PREFIX gets `site`, `bin` and what else the packages install.
"""

from __future__ import annotations

import base64
import compileall
import csv
import hashlib
import io
import json
import os
import re
import shutil
import site
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from py_compile import PycInvalidationMode

ENV_PYTHON = b"#!/usr/bin/env python3"
_INTERPRETER = re.compile(rb"\A#!\s*(\S*/python[0-9.]*)(?=\s)")
_CERTIFICATES = (
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "PIP_CERT",
    "REQUESTS_CA_BUNDLE",
    "SSL_CERT_FILE",
)


def main(folder: Path, prefix: Path, python: str) -> None:
    """Install everything, or exit with a message."""
    _check_python(python)
    inputs = folder / "install"
    settings = json.loads((inputs / "settings.json").read_text(encoding="utf-8"))
    prefix.mkdir(parents=True, exist_ok=True)
    for name in ("site", "bin"):
        (prefix / name).mkdir(exist_ok=True)
    if settings["packages"]:
        with tempfile.TemporaryDirectory() as home:
            environment = _environment(folder, Path(home), settings["environment"])
            uv = _uv(inputs, Path(home), settings["uv"], environment)
            _run(
                [
                    *(uv, "pip", "install", "--no-config", "--break-system-packages"),
                    *("--python", sys.executable, "--prefix", str(prefix)),
                    *("--cache-dir", str(folder / "cache"), "--link-mode", "copy"),
                    *("-r", str(inputs / "pylock.toml")),
                ],
                environment,
            )
    arrange(prefix, f"python{python}")
    compileall.compile_dir(
        prefix / "site", quiet=2, workers=0, invalidation_mode=PycInvalidationMode.UNCHECKED_HASH
    )
    _make_readable(prefix)


def arrange(prefix: Path, version: str) -> None:
    """Move installed modules to `site`, make scripts find `python3` by PATH, and update the records.

    *version* is the name of the folder of modules, `python3.11`.
    """
    target = prefix / "site"
    moved = []
    for folder in ("lib", "lib64", "local/lib"):
        for name in ("site-packages", "dist-packages"):
            source = prefix / folder / version / name
            if source.is_dir() and not source.parent.parent.is_symlink():
                shutil.copytree(source, target, dirs_exist_ok=True, copy_function=shutil.move)
                shutil.rmtree(source)
                moved.append(source)
                above = source.parent
                while above != prefix and not any(above.iterdir()):
                    above.rmdir()
                    above = above.parent
    for script in sorted((prefix / "bin").iterdir()):
        if script.is_file() and not script.is_symlink():
            data = script.read_bytes()
            changed = _INTERPRETER.sub(ENV_PYTHON, data, count=1)
            if changed != data:
                script.write_bytes(changed)
    for source in moved:
        for record in target.glob("*.dist-info/RECORD"):
            _update(record, source, target)
    (prefix / ".lock").unlink(missing_ok=True)


def _update(record: Path, source: Path, target: Path) -> None:
    """Make the paths in *record*, relative to *source*, relative to *target*; hash changed scripts again."""
    rows = list(csv.reader(record.read_text(encoding="utf-8").splitlines()))
    for row in rows:
        path = Path(os.path.normpath(source / row[0]))
        if path.is_relative_to(source):
            continue
        row[0] = os.path.relpath(path, target)
        if path.is_file() and row[1]:
            data = path.read_bytes()
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            row[1:3] = [f"sha256={digest}", str(len(data))]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    record.write_text(text.getvalue(), encoding="utf-8")


def _make_readable(prefix: Path) -> None:
    """Let everyone read the files below *prefix*, and only their owner write them."""
    for folder, folders, files in os.walk(prefix):
        for name in (*folders, *files):
            path = Path(folder, name)
            if not path.is_symlink():
                executable = path.is_dir() or path.stat().st_mode & 0o111
                path.chmod(0o755 if executable else 0o644)
    prefix.chmod(0o755)


def _check_python(python: str) -> None:
    found = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if found != python:
        sys.exit(f"The base image has Python {found}, and the packages were chosen for {python}.")
    wanted = {
        f"/usr/local/lib/python{python}/{name}" for name in ("site-packages", "dist-packages")
    }
    if not wanted & set(site.getsitepackages()):
        sys.exit(
            f"python3 of the base image ({sys.executable}) does not look for packages in "
            f"{' or '.join(sorted(wanted))}, so it would not find those of this image."
        )


def _environment(folder: Path, home: Path, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of uv: that of the build without other settings, with the secrets' files."""
    # This runs in a container; the base image may define proxies and the like.
    ambient = os.environ  # noqa: TID251
    kept = {k: v for k, v in ambient.items() if not k.startswith(("UV_", "PIP_", "PYTHON"))}
    kept |= {
        "HOME": str(home),
        "GIT_TERMINAL_PROMPT": "0",
        "NO_COLOR": "1",
        "UV_NO_PROGRESS": "1",
        "UV_PYTHON_DOWNLOADS": "never",
        **settings,
    }
    if _is_given(folder / "ca"):
        kept |= dict.fromkeys(_CERTIFICATES, str(folder / "ca"))
    if _is_given(folder / "netrc"):
        kept["NETRC"] = str(folder / "netrc")
        (home / ".netrc").symlink_to(folder / "netrc")  # git looks here only.
    return kept


def _is_given(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


def _uv(inputs: Path, home: Path, version: str, environment: Mapping[str, str]) -> str:
    """Return the path of uv: the one that came with the build, or one from the index that pip uses."""
    copied = inputs / "uv"
    if copied.is_file():
        return str(copied)
    folder = home / "uv"
    _run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
            *("--no-cache-dir", "--target", str(folder), f"uv=={version}"),
        ],
        {**environment, "PIP_ROOT_USER_ACTION": "ignore"},
    )
    return str(folder / "bin" / "uv")


def _run(command: list[str], environment: Mapping[str, str]) -> None:
    done = subprocess.run(command, env=dict(environment), check=False)
    if done.returncode != 0:
        sys.exit(done.returncode)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
