"""(child) Install the packages that a job brings into a folder of the workspace, with the image's uv."""

from __future__ import annotations

import importlib.util
import netrc
import os
import re
import shutil
import site
import subprocess
import sys
import sysconfig
import tomllib
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from kinetic_payload.errors import KineticError
from kinetic_payload.files.private import make_folder, write_private
from kinetic_payload.layout import Env
from kinetic_runner.workspace import Workspace

Log = Callable[[str], None]

_GOOGLE: Final = re.compile(r"[a-z0-9-]+-python\.pkg\.dev")
"""Hosts of Python repositories in Artifact Registry."""
_LOGIN: Final = re.compile(r"(?<=://)[^/@\s]+@")
_LAST_LINES: Final = 20
_RETRIES: Final = "10"
"""With growing pauses, about two minutes in all. A failed installation is not repeated by the cluster."""
_SHORTEST: Final = 4
"""Shorter passwords are not looked for: they would hide ordinary text."""
_OF_OTHERS: Final = ("UV_", "PIP_", "PYTHON")
"""Beginnings of variables that change what uv does."""
HIDING: Final = "PYTHONNOUSERSITE"
"""A variable with which Python does not find the installed packages."""


def modules_folder(base: Path) -> Path:
    """Return where modules are installed: the user's site-packages if PYTHONUSERBASE is *base*."""
    return Path(sysconfig.get_path("purelib", "posix_user", vars={"userbase": str(base)}))


def install(
    inputs: Path, space: Workspace, environment: Mapping[str, str], log: Log
) -> dict[str, str]:
    """Install what `pylock.toml` in the folder *inputs* names; return the variables that make it found.

    Every file that is downloaded is compared with its SHA-256. *log* gets uv's output, line by line, without credentials.

    Raises:
        KineticError: The image has no uv, or uv failed; the message contains the end of its output.
    """
    scratch = space.root / "installing"
    make_folder(scratch)
    folder = modules_folder(space.environment)
    try:
        make_folder(folder)
        # As in virtual environments: some systems have compiled modules there, where the user's are not looked for.
        (space.environment / "lib64").symlink_to("lib")
        logins, passwords = _logins(inputs, environment, scratch, log)
        variables = _variables(environment, scratch, log) | logins
        uv = shutil.which("uv", path=environment.get("PATH"))
        if uv is None and importlib.util.find_spec("uv") is None:
            raise KineticError(
                "The image has no uv, which installs the job's packages.",
                hint="Publish the base image with `kinetic build-image`, or add uv to your Dockerfile.",
            )
        command = [
            *([sys.executable, "-I", "-m", "uv"] if uv is None else [uv]),
            *("pip", "install", "--no-config", "--break-system-packages"),
            *("--python", sys.executable, "--prefix", str(space.environment)),
            *("-r", str(inputs / "pylock.toml")),
        ]
        _run(command, variables, passwords, log)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    path = environment.get("PATH", "")
    return {
        "PYTHONUSERBASE": str(space.environment),
        Env.PACKAGES: str(folder),
        "PATH": f"{space.environment / 'bin'}{':' * bool(path)}{path}",
    }


def make_importable(base: Path, log: Log) -> None:
    """Add the installed packages to `sys.path` if the interpreter does not look into the user's site-packages.

    They go after the standard library. Processes that the function starts do not find them then.
    """
    folder = str(modules_folder(base))
    if folder in sys.path:
        return
    log(
        f"{sys.executable} ignores PYTHONUSERBASE, as that of a virtual environment does: other Python "
        "processes of this job will not find the installed packages."
    )
    before = list(sys.path)
    site.addsitedir(folder)
    added = [path for path in sys.path if path not in before]
    library = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
    library |= {f"{folder}/lib-dynload" for folder in library}
    first = max((number + 1 for number, path in enumerate(before) if path in library), default=0)
    sys.path[:] = [*before[:first], *added, *before[first:]]


def _variables(environment: Mapping[str, str], scratch: Path, log: Log) -> dict[str, str]:
    """Return the environment of uv. The root may be read-only, and the user may have no home."""
    found = {
        name: text
        for name, text in environment.items()
        if not name.startswith(_OF_OTHERS) and name != Env.INDEX_NETRC
    }
    temporary = scratch / "tmp"
    make_folder(temporary)
    cache = {"UV_CACHE_DIR": str(scratch / "cache")}
    if shared := environment.get(Env.PACKAGE_CACHE, ""):
        try:
            # For this user: files of another user could not be replaced.
            folder = Path(shared, f"uv-{os.getuid()}")
            make_folder(folder)
            write_private(folder / ".writable", b"")
            # Links would let one job change the packages of another.
            cache = {"UV_CACHE_DIR": str(folder), "UV_LINK_MODE": "copy"}
        except OSError as error:
            log(f"The shared package cache cannot be used: {error}")
    return found | {
        "HOME": str(scratch),
        "TMPDIR": str(temporary),
        "NO_COLOR": "1",
        "UV_HTTP_RETRIES": _RETRIES,
        "UV_NO_PROGRESS": "1",
        "UV_PREVIEW_FEATURES": "pylock",
        "UV_PYTHON_DOWNLOADS": "never",
        **cache,
    }


def _run(
    command: list[str], environment: Mapping[str, str], secrets: Iterable[str], log: Log
) -> None:
    last: deque[str] = deque(maxlen=_LAST_LINES)
    with subprocess.Popen(
        command,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                text = _LOGIN.sub("", line.rstrip("\r\n"))
                for secret in secrets:
                    text = text.replace(secret, "***")
                last.append(text)
                log(text)
        except BaseException:  # A stop, for instance.
            process.kill()
            raise
    if process.returncode != 0:
        output = "\n".join(last) or f"It ended with the status {process.returncode}."
        raise KineticError(f"uv could not install the job's packages.\n{output}")


def _logins(
    inputs: Path, environment: Mapping[str, str], scratch: Path, log: Log
) -> tuple[dict[str, str], list[str]]:
    """Return variables with the logins for indexes (those of the job, and Google's for this pod), and their passwords."""
    path = scratch / "netrc"
    text = environment.get(Env.INDEX_NETRC, "")
    write_private(path, text.encode())
    hosts = _google_hosts(inputs / "pylock.toml") - netrc.netrc(str(path)).hosts.keys()
    if hosts:
        try:
            from kinetic_payload.http.google import fresh_credentials

            login = f"login oauth2accesstoken password {fresh_credentials().token}"
        except Exception as error:  # noqa: BLE001 - uv then reports what the index answers
            log(f"There are no Google credentials for {', '.join(sorted(hosts))}: {error}")
        else:
            text += "".join(f"machine {host} {login}\n" for host in sorted(hosts))
            write_private(path, text.encode())
    if not text:
        return {}, []
    passwords = {found[2] for found in netrc.netrc(str(path)).hosts.values() if found[2]}
    # The longest first, because one may be part of another.
    return {"NETRC": str(path)}, sorted(
        (each for each in passwords if len(each) >= _SHORTEST), key=len, reverse=True
    )


def _google_hosts(lock: Path) -> set[str]:
    packages: list[dict[str, Any]] = tomllib.loads(lock.read_text(encoding="utf-8"))["packages"]
    urls = (wheel.get("url", "") for package in packages for wheel in package.get("wheels", ()))
    places = [urlsplit(url) for url in urls]
    # A netrc file names no scheme, and uv would send the token by plain http as well.
    plain = {place.hostname for place in places if place.scheme != "https"}
    return {place.netloc for place in places if _GOOGLE.fullmatch(place.netloc)} - plain
