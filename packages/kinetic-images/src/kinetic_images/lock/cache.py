"""Locks that were resolved before, in a folder of this machine; one resolution for many callers."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from kinetic_images.declared.uv_settings import Index
from kinetic_images.dependencies import OWN_NAMES
from kinetic_images.kept_records import mark_used
from kinetic_images.lock.index_credentials import IndexCredentials
from kinetic_images.lock.packages import Lock, file_path
from kinetic_images.lock.request import LockRequest, requirement_name
from kinetic_images.lock.resolve import resolve
from kinetic_images.uv import find_uv
from kinetic_payload.files.locks import locked
from kinetic_payload.files.private import make_folder, read_private, write_private

T = TypeVar("T")

FOLDER: Final = ("cache", "locks")
"""The folder of kept locks in a home, as parts of its path."""


def ensure_lock(
    request: LockRequest,
    *,
    home: Path,
    environ: Mapping[str, str] | None = None,
    report: Callable[[str], None],
    refresh: bool = False,
) -> Lock:
    """Return the lock for *request*: the kept one, or a new one, which is kept in *home*.

    A kept lock is used as long as the request is the same, whatever an index offers meanwhile; *refresh* makes a
    new one. Any number of processes and threads may call this: one resolves, the others wait.
    *environ* is the environment of uv (default: that of the process).

    Raises:
        DependencyError: A hash, an extra or the project's own lock does not fit.
        InstallError: uv failed; the message contains its output and the lines to which it refers.
        UvNotFoundError: There is no uv.
    """
    path = home.joinpath(*FOLDER, f"{request.digest}.json")
    stale = _read(path, request) if refresh else None

    def ready() -> Lock | None:
        found = _read(path, request)
        # Another process may have refreshed it while this one waited.
        return None if stale is not None and found == stale else found

    def make() -> Lock:
        source = request.dependencies.source
        report(f"Resolving the dependencies{f' in {source}' if source else ''} with uv.")
        make_folder(path.parent)
        # Beside the result, and private: the files in it may contain credentials.
        for left in path.parent.glob(f".{path.stem}-*"):  # Of a process that was killed.
            shutil.rmtree(left, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.stem}-") as scratch:
            variables = IndexCredentials(request.dependencies, environ).variables(Path(scratch))
            lock = resolve(request, find_uv(environ), Path(scratch), variables)
        write_private(path, lock_text(lock).encode())
        return lock

    waiting = partial(report, "The same dependencies are being resolved already; waiting for that.")
    return single_flight(path, ready=ready, make=make, waiting=waiting)


def single_flight(
    path: Path,
    *,
    ready: Callable[[], T | None],
    make: Callable[[], T],
    waiting: Callable[[], None],
) -> T:
    """Return the result of *ready* if it is not None; otherwise *make* it, or wait while another process does.

    `{path}.lock` is held while it is made. If that fails, a process that waited tries it itself. *waiting* is called
    once if there is something to wait for.
    """
    found = ready()
    if found is not None:
        return found
    make_folder(path.parent)
    with locked(f"{path}.lock", waiting=waiting):
        found = ready()  # Another process may have made it while we waited.
        return make() if found is None else found


def lock_text(lock: Lock) -> str:
    """Return *lock* as text: JSON without credentials."""
    return msgspec.json.encode(lock).decode()


def shared_lock_text(lock: Lock, request: LockRequest) -> str | None:
    """Return *lock* as text for other machines, without paths of this one; None: it can be used only here."""
    packages, own = [], {*map(requirement_name, request.own), *OWN_NAMES}
    for package in lock.packages:
        if package.local_path is None:
            packages.append(package)
        elif package.name in own:
            packages.append(replace(package, address=Path("/", package.file).as_uri()))
        else:
            return None
    return lock_text(Lock(tuple(packages), lock.notes))


def usable_lock(text: str, request: LockRequest) -> Lock | None:
    """Return the lock in the *text* of `lock_text`, with the addresses of Kinetic's own wheels on this machine.

    None if it is damaged, or if it names a file that is not on this machine.
    """
    try:
        kept = msgspec.json.decode(text, type=Lock)
    except msgspec.DecodeError:
        return None
    own = {requirement_name(text): path for text, path in request.own.items()}
    here = []
    for package in kept.packages:
        path = own.get(package.name) or request.fallback.get(package.name)
        if path is not None:
            # The folder of such a wheel is named by its digest.
            if package.file != path.name or not package.sha256.startswith(path.parent.name):
                return None
            here.append(replace(package, address=path.as_uri()))
            continue
        path = package.local_path if package.file else None
        if path is not None:
            try:
                with path.open("rb") as stream:
                    digest = hashlib.file_digest(stream, "sha256").hexdigest()
            except OSError:
                return None
            if digest != package.sha256:
                return None
        here.append(package)
    return replace(kept, packages=tuple(here))


def _read(path: Path, request: LockRequest) -> Lock | None:
    try:
        found = usable_lock(read_private(path).decode(), request)
        mark_used(path)
        return found
    except (FileNotFoundError, PermissionError, UnicodeDecodeError):
        return None


def local_folder(index: Index) -> Path | None:
    """Return the path on this machine that *index* names; None: it is elsewhere."""
    return Path(index.address) if index.address.startswith("/") else file_path(index.address)
