"""Isolated environments of local jobs: made once for each digest by uv, then reused.

`{home}/environments/{digest}/` holds a virtual environment, `complete`, which is written last and names
it, and `last-used`, which is touched at every use. An environment cannot be moved, so each one is made in
its final place, with a unique name: if its maker is killed, the remaining uv process cannot damage the
next one. `{digest}.lock` beside the folder is held while it is made or removed. The digest is that of the
locked packages, of the interpreter and of the layout.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from kinetic.errors import KineticError
from kinetic.home.removal import remove_tree
from kinetic.requirements import BUCKET_CLIENT, BUCKET_REQUIREMENT, PICKLE
from kinetic_images.dependencies import Dependencies, find_dependencies
from kinetic_images.errors import InstallError
from kinetic_images.lock.cache import ensure_lock, single_flight
from kinetic_images.lock.packages import Lock
from kinetic_images.lock.project_locks import find_lock
from kinetic_images.lock.pylock import pylock_text
from kinetic_images.lock.request import LockRequest
from kinetic_images.lock.resolve import explained
from kinetic_images.lock.uv_input import write_install_input
from kinetic_images.uv import Uv, find_uv
from kinetic_images.wheels import FOLDER, copied_wheel, own_wheels_of
from kinetic_payload.files.locks import locked
from kinetic_payload.files.private import (
    make_folder,
    open_private,
    others_may_write,
    read_private,
    write_private,
)

ENVIRONMENTS: Final = "environments"
"""The folder of all environments in `KINETIC_HOME`."""
COMPLETE: Final = "complete"
LAST_USED: Final = "last-used"

_LAYOUT: Final = 3
_PYTHON: Final = ".".join(map(str, sys.version_info[:3]))
_LINK_MODE: Final = "UV_LINK_MODE"
_GONE: Final = re.compile(r"\b(?:404 Not Found|410 Gone)\b")
"""What uv prints about a file of a lock that has vanished."""
_WAITING: Final = "The same environment is being made already; waiting for it."

Report = Callable[[str], None]


@dataclass(frozen=True)
class VirtualEnvironment:
    """A virtual environment that is ready."""

    python: Path
    digest: str
    notes: tuple[str, ...] = ()
    """Notes for the user on what was left out or not read."""


def ensure_environment(
    start: Path | None,
    *,
    home: Path,
    project: Path | None = None,
    report: Report | None = None,
    environ: Mapping[str, str] | None = None,
    bucket: bool = False,
    refresh: bool = False,
    checked: Callable[[], None] = lambda: None,
) -> VirtualEnvironment:
    """Return the environment for the code at *start*, and make it first if it does not exist.

    *project* is the folder that is shipped (default: *start*).
    It is for the interpreter of this process. Any number of processes and threads may call this for the
    same project: one resolves the dependencies and makes the environment, the others wait. *environ* is the
    environment of uv (default: that of the process). *report* is called with progress messages. With *bucket*,
    the environment also has the client for buckets. *refresh* resolves the dependencies again. *checked* is
    called when they are resolved.

    Raises:
        DependencyError: A declared dependency cannot be read or used; the message names its file and line.
        InstallError: uv failed; the message holds its output, and the lines that it refers to.
        UvNotFoundError: There is no uv.
    """
    report_any = report or (lambda _: None)
    # Not sysconfig's name: on a Mac that may be `universal2`, which is no machine.
    platform = f"{sys.platform}-{os.uname().machine}"
    found = find_dependencies(start, project=project, environ=environ)
    dependencies = found.for_target(platform, _PYTHON)
    dependencies.refuse_unusable(_PYTHON)
    own, fallback = own_wheels_of(dependencies, home)
    asked = {requirement.name for requirement in dependencies.requirements}
    request = LockRequest(
        dependencies=dependencies,
        target=None,
        interpreter=sys.executable,
        python=_PYTHON,
        platform=platform,
        additions=(BUCKET_REQUIREMENT,) if bucket and BUCKET_CLIENT not in asked else (),
        preferences=()
        if PICKLE in asked
        else (f"{PICKLE} @ {copied_wheel(home.joinpath(*FOLDER), PICKLE, PICKLE).as_uri()}",),
        own=own,
        fallback=fallback,
        locked=find_lock(dependencies),
    )
    lock = ensure_lock(request, home=home, environ=environ, report=report_any, refresh=refresh)
    checked()
    ingredients = [_LAYOUT, lock.digest, os.path.realpath(sys.executable), _PYTHON]
    folder = home / ENVIRONMENTS / hashlib.sha256(json.dumps(ingredients).encode()).hexdigest()
    environment = single_flight(
        folder,
        ready=partial(_ready, folder),
        make=partial(_make, folder, lock, dependencies, environ, report_any),
        waiting=partial(report_any, _WAITING),
    )
    return replace(environment, notes=(*dependencies.notes, *lock.notes))


def remove_environment(home: Path, digest: str, *, unused_since: float | None = None) -> bool:
    """Remove an environment, after waiting if it is being made; return whether it was removed.

    With *unused_since* (seconds since the epoch), keep an environment that was used later, even if its use
    begins at this moment.
    """
    folder = home / ENVIRONMENTS / digest
    if not folder.exists():
        return False
    # Do not remove the lock file: otherwise two processes could lock two different files of that name.
    with locked(f"{folder}.lock"):
        complete, aside = folder / COMPLETE, folder / f"{COMPLETE}.aside"
        # A process that uses it sets the mark first and looks second. So hide it first and look second.
        with suppress(FileNotFoundError):
            complete.replace(aside)
        if unused_since is not None and last_used(folder) >= unused_since:
            with suppress(FileNotFoundError):
                aside.replace(complete)
            return False
        _clear(folder)
    return True


def last_used(folder: Path) -> float:
    """Return when the environment in *folder* was last used, in seconds since the epoch."""
    for path in (folder / LAST_USED, folder):
        with suppress(FileNotFoundError):
            return path.stat().st_mtime
    return 0.0


def _ready(folder: Path) -> VirtualEnvironment | None:
    """Return the environment if it is complete, and mark it as used."""
    try:
        used = folder / LAST_USED  # Marked first, as `remove_environment` explains.
        os.close(open_private(used, os.O_WRONLY | os.O_CREAT))
        os.utime(used)
        if others_may_write(folder.stat()):
            return None
        made = json.loads(read_private(folder / COMPLETE))
        python = folder / str(made["venv"]) / "bin" / "python"
    except (FileNotFoundError, PermissionError, ValueError, KeyError, TypeError):
        return None  # Also if a full disk or a crash of the machine damaged it.
    if not python.exists():  # The interpreter that it links to was removed or upgraded.
        return None
    return VirtualEnvironment(python, folder.name)


def _make(
    folder: Path,
    lock: Lock,
    dependencies: Dependencies,
    environ: Mapping[str, str] | None,
    report: Report,
) -> VirtualEnvironment:
    """Make the environment in *folder*; if that fails, nothing of it stays."""
    report(f"Making an isolated environment with {len(lock.packages)} packages.")
    uv = find_uv(environ)
    _clear(folder)
    make_folder(folder)
    venv = folder / f"venv-{secrets.token_hex(3)}"
    try:
        uv.run("venv", "--no-project", "--python", sys.executable, str(venv))
        # Inside the folder, so that remains of a killed process are removed with it.
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            output = _install(venv, lock, dependencies, uv, Path(scratch))
        write_private(folder / "uv.log", output.encode())
        write_private(folder / "pylock.toml", pylock_text(lock.packages).encode())
        record = {"layout": _LAYOUT, "venv": venv.name}
        write_private(folder / COMPLETE, json.dumps(record).encode())
    except BaseException:
        _clear(folder)
        raise
    report("The environment is ready, and is reused from now on.")
    found = _ready(folder)
    if found is None:
        raise KineticError(
            f"The environment {folder} was made, but it has no working Python.",
            hint=f"Check whether {sys.executable} was removed.",
        )
    return found


def _install(venv: Path, lock: Lock, dependencies: Dependencies, uv: Uv, scratch: Path) -> str:
    """Install the packages of *lock*; return the output of uv."""
    given = write_install_input(scratch, dependencies, lock.packages, uv.environment)
    command = ["pip", "install", "--python", str(venv / "bin" / "python"), "--compile-bytecode"]
    command += given.arguments
    modes = [*dependencies.settings.values("link-mode"), uv.environment.get(_LINK_MODE)]
    if "symlink" in modes:
        # The environment must outlive uv's cache.
        command += ["--link-mode", "copy"]
    try:
        return uv.run(*command, folder=scratch, project=given.project, more=given.variables)
    except InstallError as error:
        # Its text is in the message.
        failure = explained(error, dependencies, "could not be installed")
        if _GONE.search(error.output):
            failure.hint = "A file is not on its server any more. Resolve the dependencies again: set KINETIC_REBUILD=1."
        raise failure from None


def _clear(folder: Path) -> None:
    # First: a partly removed environment must not look complete.
    (folder / COMPLETE).unlink(missing_ok=True)
    # The uv of a killed process may still be writing here, but under another name.
    remove_tree(str(folder))
