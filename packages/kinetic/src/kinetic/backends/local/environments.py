"""Isolated environments of local jobs: made once for each digest by uv, then reused.

`{home}/environments/{digest}/` holds a virtual environment, `complete`, which is written last and names
it, and `last-used`, which is touched at every use. An environment cannot be moved, so each one is made in
its final place, with a unique name: if its maker is killed, the remaining uv process cannot damage the
next one. `{digest}.lock` beside the folder is held while it is made or removed; `{digest}.failed` holds
the reason of a failure, for processes that waited for it.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import re
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from kinetic.backends.local.bucket_access import CLIENT
from kinetic.backends.local.removal import remove_tree
from kinetic.errors import KineticError
from kinetic_images.dependencies import Dependencies, find_dependencies
from kinetic_images.errors import InstallError
from kinetic_images.uv import Uv, find_uv
from kinetic_images.uv_input import UvInput, write_input
from kinetic_images.wheels import copied_wheel, installed_own_names, own_closure, own_wheels
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
FAILED: Final = ".failed"
"""Suffix of the file that holds the reason why an environment could not be made."""

_LAYOUT: Final = 2
"""Environments of layout 1 have the modes of their maker's umask: other users may have changed them."""
_WHEELS: Final = ("cache", "wheels")
_PICKLE: Final = "cloudpickle"

Report = Callable[[str], None]


@dataclass(frozen=True)
class VirtualEnvironment:
    """A virtual environment that is ready."""

    python: Path
    digest: str
    notes: tuple[str, ...] = ()
    """Notes for the user on what was left out or not read."""


@dataclass(frozen=True)
class _Plan:
    """The contents of an environment to make, and their digest."""

    digest: str
    interpreter: str
    dependencies: Dependencies
    own: Mapping[str, Path] = field(default_factory=dict)
    """Wheels of Kinetic's own distributions, by requirement (name and extras)."""
    notes: tuple[str, ...] = ()
    client: str | None = None
    """Requirement to install for access to buckets."""


def ensure_environment(
    root: Path | None,
    *,
    home: Path,
    interpreter: str,
    report: Report | None = None,
    environ: Mapping[str, str] | None = None,
    bucket: bool = False,
) -> VirtualEnvironment:
    """Return the environment for the project at *root*, and make it first if it does not exist.

    Any number of processes and threads may call this for the same project: one makes the environment, the
    others wait. *environ* is the environment of uv (default: that of the process). *report* is called with
    progress messages, and with each note once per process. With *bucket*, the environment also has the client
    for buckets.

    Raises:
        DependencyError: A declared dependency cannot be read or used; the message names its file and line.
        InstallError: uv failed; the message holds its output, and the lines that it refers to.
        UvNotFoundError: There is no uv.
    """
    plan = _plan(root, home, interpreter, bucket=bucket, environ=environ)
    folder = home / ENVIRONMENTS / plan.digest
    report_any = report or (lambda _: None)
    environment = _ready(folder, plan) or _make_or_wait(folder, plan, home, environ, report_any)
    for note in environment.notes:
        if report and note not in _reported:
            _reported.add(note)
            report(note)
    return environment


_reported: Final[set[str]] = set()
"""Notes that this process has reported, so that it does not report them again."""


def _make_or_wait(
    folder: Path, plan: _Plan, home: Path, environ: Mapping[str, str] | None, report: Report
) -> VirtualEnvironment:
    """Make the environment, or wait while another process makes it."""
    make_folder(folder.parent)
    before = _last_failure(folder)
    with _locked(folder, report):
        ready = _ready(folder, plan)
        if ready is not None:  # Another process made it while we waited.
            return ready
        failed = _last_failure(folder)
        if failed is not None and failed != before:  # Another process failed while we waited.
            raise _error_of(failed, plan)
        failure_file(folder).unlink(missing_ok=True)
        source = plan.dependencies.source
        report(f"Making an isolated environment {f'from {source} ' if source else ''}with uv.")
        try:
            _make(folder, plan, home, find_uv(environ))
        except InstallError as error:
            if not error.killed:  # If only this uv was killed, the waiting processes need not fail.
                _keep_failure(folder, error)
            raise
        report("The environment is ready, and is reused from now on.")
        ready = _ready(folder, plan)
    if ready is None:
        raise KineticError(
            f"The environment {folder} was made, but it has no working Python.",
            hint=f"Check whether {plan.interpreter} was removed.",
        )
    return ready


def failure_file(folder: Path) -> Path:
    """Return the file with the failure of the last attempt to make the environment in *folder*.

    Processes that waited for that attempt read it; later processes try again.
    """
    return folder.with_name(f"{folder.name}{FAILED}")


def _last_failure(folder: Path) -> dict[str, str | None] | None:
    try:
        failure = json.loads(failure_file(folder).read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return failure if isinstance(failure, dict) else None


def _keep_failure(folder: Path, error: InstallError) -> None:
    # Each reader explains the output again, with the lines of its own copy of the project.
    explained = isinstance(error.__cause__, InstallError)
    failure = {
        "attempt": secrets.token_hex(8),
        "output": error.output,
        "message": None if explained else error.message,
        "hint": error.hint,
    }
    with suppress(OSError):  # Without this file, the waiting processes try again.
        write_private(failure_file(folder), json.dumps(failure).encode())


def _error_of(failure: Mapping[str, str | None], plan: _Plan) -> InstallError:
    message = failure.get("message")
    error = InstallError(message or "", hint=failure.get("hint"))
    error.output = failure.get("output") or ""
    return error if message else _explain(error, plan.dependencies)


def remove_environment(home: Path, digest: str, *, unused_since: float | None = None) -> bool:
    """Remove an environment, after waiting if it is being made; return whether it was removed.

    With *unused_since* (seconds since the epoch), keep an environment that was used later, even if its use
    begins at this moment.
    """
    folder = home / ENVIRONMENTS / digest
    if not folder.exists():
        return False
    # Do not remove the lock file: otherwise two processes could lock two different files of that name.
    with _locked(folder, lambda _: None):
        complete, aside = folder / COMPLETE, folder / f"{COMPLETE}.aside"
        # A process that uses it sets the mark first and looks second. So hide it first and look second.
        with suppress(FileNotFoundError):
            complete.replace(aside)
        if unused_since is not None and _last_used(folder) >= unused_since:
            with suppress(FileNotFoundError):
                aside.replace(complete)
            return False
        _clear(folder)
    return True


def _last_used(folder: Path) -> float:
    for path in (folder / LAST_USED, folder):
        with suppress(FileNotFoundError):
            return path.stat().st_mtime
    return 0.0


def _plan(
    root: Path | None,
    home: Path,
    interpreter: str,
    *,
    bucket: bool = False,
    environ: Mapping[str, str] | None = None,
) -> _Plan:
    version, base = _identity(interpreter)
    # Not sysconfig's name: on a Mac that may be `universal2`, which is no machine.
    platform = f"{sys.platform}-{os.uname().machine}"
    dependencies = find_dependencies(root, environ=environ).for_target(platform, version)
    dependencies.refuse_local()
    own: dict[str, Path] = {}
    if dependencies.own:
        closure = own_closure(_own_extras(dependencies))
        wheels = own_wheels(home.joinpath(*_WHEELS), closure)
        for (name, extras), wheel in zip(closure.items(), wheels, strict=True):
            own[f"{name}[{','.join(extras)}]" if extras else name] = wheel
    ingredients = [
        _LAYOUT,
        dependencies.digest(platform, version),
        base,
        importlib.metadata.version(_PICKLE),
        {name: wheel.parent.name for name, wheel in own.items()},
    ]
    client = None
    if bucket and not any(requirement.name == CLIENT for requirement in dependencies.requirements):
        client = _client_requirement()
        ingredients.append(client)
    digest = hashlib.sha256(json.dumps(ingredients, sort_keys=True).encode()).hexdigest()
    notes = (*dependencies.notes, *_python_note(dependencies, version))
    return _Plan(digest, interpreter, dependencies, own, notes, client)


def _client_requirement() -> str:
    """Return the requirement for the bucket client, as `kinetic-payload` declares it."""
    for text in importlib.metadata.requires("kinetic-payload") or ():
        needed = Requirement(text)
        if canonicalize_name(needed.name) == CLIENT:
            return f"{needed.name}{needed.specifier}"
    return CLIENT


def _own_extras(dependencies: Dependencies) -> dict[str, tuple[str, ...]]:
    extras: dict[str, set[str]] = {}
    for requirement in dependencies.own:
        extras.setdefault(requirement.name, set()).update(requirement.extras)
    return {name: tuple(sorted(names)) for name, names in extras.items()}


def _python_note(dependencies: Dependencies, version: str) -> Iterator[str]:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    wanted = dependencies.requires_python
    try:
        fits = wanted is None or SpecifierSet(wanted).contains(version, prereleases=True)
    except InvalidSpecifier:
        return
    if not fits:
        yield f"{dependencies.source} requires Python {wanted}; the job runs on {version}."


def _identity(interpreter: str) -> tuple[str, str]:
    """Return the version of *interpreter*, and the program to which it links."""
    base = os.path.realpath(interpreter)
    if base == os.path.realpath(sys.executable):
        return ".".join(map(str, sys.version_info[:3])), base
    code = (
        "import os, sys; print('%d.%d.%d' % sys.version_info[:3], os.path.realpath(sys.executable))"
    )
    try:
        done = subprocess.run(
            [interpreter, "-I", "-S", "-c", code], capture_output=True, check=True, text=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise KineticError(
            f"The interpreter {interpreter} does not run: {error}.",
            hint="Use another interpreter, or install this one again.",
        ) from error
    version, _, program = done.stdout.strip().partition(" ")
    return version, program


def _ready(folder: Path, plan: _Plan) -> VirtualEnvironment | None:
    """Return the environment if it is complete, and mark it as used."""
    try:
        _touch(folder / LAST_USED)  # First, as `remove_environment` explains.
        if others_may_write(folder.stat()):
            return None
        made = json.loads(read_private(folder / COMPLETE))
    except (FileNotFoundError, PermissionError, ValueError):
        return None
    python = folder / made["venv"] / "bin" / "python"
    if not python.exists():  # The interpreter that it links to was removed or upgraded.
        return None
    return VirtualEnvironment(python, plan.digest, (*plan.notes, *made["notes"]))


def _touch(path: Path) -> None:
    os.close(open_private(path, os.O_WRONLY | os.O_CREAT))
    os.utime(path)


def _make(folder: Path, plan: _Plan, home: Path, uv: Uv) -> None:
    """Make the environment in *folder*; on any failure nothing of it stays."""
    _clear(folder)
    make_folder(folder)
    venv = folder / f"venv-{secrets.token_hex(3)}"
    try:
        uv.run("venv", "--no-project", "--python", plan.interpreter, str(venv))
        # Inside the folder, so that remains of a killed process are removed with it.
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            notes, output = _install(venv, plan, home, uv, Path(scratch))
        write_private(folder / "uv.log", output.encode())
        record = {"layout": _LAYOUT, "venv": venv.name, "notes": notes}
        write_private(folder / COMPLETE, json.dumps(record).encode())
    except BaseException:
        _clear(folder)
        raise


def _install(venv: Path, plan: _Plan, home: Path, uv: Uv, scratch: Path) -> tuple[list[str], str]:
    """Install everything; return notes for the user, and the output of uv."""
    wheels = home.joinpath(*_WHEELS)
    # If another package requires one of Kinetic's, it gets the local copy, not a package from an index.
    names = installed_own_names()
    constraints = [
        f"{name} @ {wheel.as_uri()}"
        for name, wheel in zip(sorted(names), own_wheels(wheels, names), strict=True)
    ]
    additions = [f"{name} @ {wheel.as_uri()}" for name, wheel in plan.own.items()]
    if plan.client is not None:
        additions.append(plan.client)
    pickle: list[str] = []
    if not any(requirement.name == _PICKLE for requirement in plan.dependencies.requirements):
        pickle = [f"{_PICKLE} @ {copied_wheel(wheels, _PICKLE, _PICKLE).as_uri()}"]
    job = _Installation(venv, plan.dependencies, uv, scratch, constraints)
    try:
        return [], job.run([*additions, *pickle])
    except InstallError as error:
        if not pickle or _PICKLE not in error.output:
            raise
    # Another package requires a different cloudpickle; small differences are harmless, and the
    # runner reports a greater one before it unpickles anything.
    output = job.run([*additions, _PICKLE])
    return [
        f"A dependency requires another version of {_PICKLE} than the one here; that version was installed."
    ], output


@dataclass(frozen=True)
class _Installation:
    """One `uv pip install`, which may have to be repeated."""

    venv: Path
    dependencies: Dependencies
    uv: Uv
    scratch: Path
    constraints: list[str]

    def run(self, additions: list[str]) -> str:
        """Install the user's requirements and the *additions*; return the output of uv."""
        write = partial(write_input, self.scratch, self.dependencies)
        write_additions = partial(write, additions=additions, constraints=self.constraints)
        if self.dependencies.requires_hashes:
            # There are no hashes for the additions, so they are installed separately.
            return self._uv(write()) + self._uv(write_additions(asked=False))
        return self._uv(write_additions())

    def _uv(self, given: UvInput) -> str:
        python = str(self.venv / "bin" / "python")
        command = ["pip", "install", "--python", python, "--compile-bytecode", *given.options]
        command += [word for file in given.files for word in ("-r", str(file))]
        try:
            output = self.uv.run(*command, folder=self.scratch, settings=given.settings)
            return output + "\n"
        except InstallError as error:
            raise _explain(error, self.dependencies) from error


def _explain(error: InstallError, dependencies: Dependencies) -> InstallError:
    """Add to uv's output the lines of the user's files to which it refers."""
    named = dependencies.named_in(error.output)
    source = f" of {dependencies.source}" if dependencies.source else ""
    # Leave out uv's line about the Python that it used: that folder is gone by now.
    output = re.sub(r"^Using .* environment at: .*\n", "", error.output, flags=re.MULTILINE)
    message = f"The environment{source} could not be made. Output of uv:\n{output}"
    if named:
        message += "\nIt refers to:" + "".join(f"\n  {place}: {line}" for place, line in named)
    explained = InstallError(
        message, hint="Correct the problem and call again; the unfinished environment was removed."
    )
    explained.output = output
    explained.killed = error.killed
    explained.places = tuple(place for place, _ in named)
    return explained


def _clear(folder: Path) -> None:
    # First: a partly removed environment must not look complete.
    (folder / COMPLETE).unlink(missing_ok=True)
    # The uv of a killed process may still be writing here, but under another name.
    remove_tree(str(folder))


@contextmanager
def _locked(folder: Path, report: Report) -> Iterator[None]:
    """Hold the environment's lock, against other processes and other threads of this one."""

    def waiting() -> None:
        report("The same environment is being made already; waiting for it.")

    with locked(f"{folder}.lock", waiting=waiting):
        yield
