"""The program uv: find it, and run it with a filtered environment."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kinetic_images.credentials import without_secrets
from kinetic_images.errors import InstallError, UvNotFoundError
from kinetic_payload.threads import check_wanted

OLDEST: Final = (0, 9)
"""The oldest supported version of uv."""

_POLL_SECONDS: Final = 0.1
"""Seconds between checks whether the wait for uv should be stopped."""
_INDEXES: Final = {
    "UV_DEFAULT_INDEX": None,
    "UV_INDEX_URL": None,
    "UV_INDEX": " ",
    "UV_EXTRA_INDEX_URL": " ",
    "UV_FIND_LINKS": ",",
}
"""Variables that name indexes → what separates several of them; None: there is one only."""
_CHOICES: Final = (
    "UV_EXCLUDE_NEWER",
    "UV_EXCLUDE_NEWER_PACKAGE",
    "UV_FORK_STRATEGY",
    "UV_INDEX_STRATEGY",
    "UV_NO_BINARY",
    "UV_NO_BINARY_PACKAGE",
    "UV_NO_BUILD",
    "UV_NO_BUILD_ISOLATION",
    "UV_NO_BUILD_PACKAGE",
    "UV_ONLY_BINARY",
    "UV_PRERELEASE",
    "UV_RESOLUTION",
    "UV_TORCH_BACKEND",
)
"""Variables that choose versions, or say how packages are built."""
_PATHS: Final = ("UV_CACHE_DIR", "UV_CONFIG_FILE", "UV_CREDENTIALS_DIR")
_PASSED_ON: Final = frozenset(
    {
        *_INDEXES,
        *_CHOICES,
        *_PATHS,
        "UV_CONCURRENT_BUILDS",
        "UV_CONCURRENT_DOWNLOADS",
        "UV_CONCURRENT_INSTALLS",
        "UV_HTTP_CONNECT_TIMEOUT",
        "UV_HTTP_RETRIES",
        "UV_HTTP_TIMEOUT",
        "UV_INSECURE_HOST",
        "UV_KEYRING_PROVIDER",
        "UV_LINK_MODE",
        "UV_NATIVE_TLS",
        "UV_NO_CONFIG",
        "UV_OFFLINE",
        "UV_REQUEST_TIMEOUT",
        "UV_SYSTEM_CERTS",
    }
)
"""The variables of uv that have an effect. Others are about its projects, tools and Pythons."""
_PASSED_ON_PREFIX: Final = "UV_INDEX_"  # UV_INDEX_{NAME}_USERNAME and _PASSWORD
_DROPPED: Final = frozenset(
    {"VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP"}
)
_INDEX_NAME: Final = re.compile(r"[\w.-]+=")
_ANSI: Final = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


@dataclass(frozen=True)
class Uv:
    """The uv that was found, and the environment in which it runs."""

    program: str
    environment: Mapping[str, str] = field(repr=False)

    def run(
        self,
        *arguments: str,
        folder: Path | None = None,
        project: Path | None = None,
        more: Mapping[str, str] | None = None,
    ) -> str:
        """Run uv with *arguments* in *folder* and return what it printed, errors included.

        uv reads the settings for the folder *project*; without one, it reads no settings files. *more* variables
        are added to its environment.

        uv is killed if the work of this thread is stopped, or on Ctrl-C.

        Raises:
            InstallError: uv failed; the message and `output` contain what it printed.
        """
        config = ["--no-config"] if project is None else [f"--project={project}"]
        with subprocess.Popen(
            [self.program, *config, *arguments],
            cwd=folder,
            env={**self.environment, **(more or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as process:
            try:
                while True:
                    try:
                        printed, _ = process.communicate(timeout=_POLL_SECONDS)
                        break
                    except subprocess.TimeoutExpired:
                        check_wanted()
            except BaseException:
                process.kill()
                raise
        output = cleaned(printed.decode(errors="replace"))
        if process.returncode != 0:
            what = " ".join(word for word in arguments[:2] if not word.startswith("-"))
            error = InstallError(
                f"uv {what} failed (exit code {process.returncode}):\n{output}".rstrip(),
                hint="The lines above were printed by uv.",
            )
            error.output = output
            error.killed = process.returncode < 0
            raise error
        return output


def find_uv(environ: Mapping[str, str] | None = None) -> Uv:
    """Find uv on PATH, or else in the installed distribution `uv`.

    Raises:
        UvNotFoundError: No uv was found, or every uv that was found is too old.
    """
    environment = uv_environment(inherited(environ))
    seen = []
    path = environment.get("PATH")
    found = [shutil.which("uv", path=path) if path else None]
    with suppress(ImportError, FileNotFoundError):
        from uv import find_uv_bin

        found.append(find_uv_bin())
    for program in dict.fromkeys(filter(None, found)):
        version = _version(program, environment)
        if version is not None and version >= OLDEST:
            return Uv(program, environment)
        seen.append(f"{program} ({'.'.join(map(str, version)) if version else 'does not run'})")
    wanted = ".".join(map(str, OLDEST))
    raise UvNotFoundError(
        f"No uv of version {wanted} or newer was found"
        + (f"; seen: {', '.join(seen)}." if seen else "."),
        hint="Install it with: pip install uv",
    )


def inherited(environ: Mapping[str, str] | None) -> Mapping[str, str]:
    """Return *environ*, or the process's own environment if it is None."""
    # uv is configured by the environment it inherits; this edge passes that on.
    return os.environ if environ is None else environ  # noqa: TID251


def index_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables in *environ* that name indexes, with relative paths made absolute."""
    found = ((name, environ.get(name)) for name in _INDEXES)
    return {name: _with_absolute_paths(name, value) for name, value in found if value}


def choice_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables in *environ* that choose versions, or say how packages are built."""
    return {name: environ[name] for name in _CHOICES if environ.get(name)}


def uv_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return *environ* without the variables that are about another Python or project.

    Relative paths in it become absolute, because uv runs in another folder.
    """
    kept = {
        name: _with_absolute_paths(name, value)
        for name, value in environ.items()
        if (name in _PASSED_ON or name.startswith(_PASSED_ON_PREFIX))
        or not (name.startswith("UV_") or name in _DROPPED)
    }
    return kept | {"UV_PYTHON_DOWNLOADS": "never", "UV_NO_PROGRESS": "1", "NO_COLOR": "1"}


def cleaned(text: str) -> str:
    """Return a program's output without colours and credentials."""
    return without_secrets(_ANSI.sub("", text)).strip()


def _with_absolute_paths(name: str, value: str) -> str:
    """Return the *value* of the variable *name* with relative paths made absolute."""
    if name in _PATHS and value:
        return str(Path(value).absolute())
    if name not in _INDEXES or not value:
        return value
    separator = _INDEXES[name]
    words = value.split(separator) if separator else [value]
    made = []
    for address in filter(None, words):
        # An index may have a name.
        named = _INDEX_NAME.match(address)
        label, place = (named[0], address[named.end() :]) if named else ("", address)
        if "://" in place or place.startswith(("/", "file:")):
            made.append(address)
        else:  # A URI, because a blank would end a path.
            made.append(label + Path(place).absolute().as_uri())
    return (separator or "").join(made)


def _version(program: str, environment: Mapping[str, str]) -> tuple[int, ...] | None:
    try:
        done = subprocess.run(
            [program, "--version"],
            env=dict(environment),
            capture_output=True,
            check=True,
            timeout=30,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(rb"(\d+)\.(\d+)(?:\.(\d+))?", done.stdout)
    return tuple(int(part) for part in found.groups() if part) if found else None
