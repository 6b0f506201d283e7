"""Resolutions: the base and the exact packages of an image, kept on this machine and shared with others."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec

from kinetic_images.bases import BaseImage, find_base
from kinetic_images.errors import InvalidReferenceError
from kinetic_images.kept_records import SharedRecords, find_record, keep_record
from kinetic_images.lock.cache import (
    ensure_lock,
    local_folder,
    lock_text,
    shared_lock_text,
    usable_lock,
)
from kinetic_images.lock.packages import Lock
from kinetic_images.lock.request import LockRequest
from kinetic_images.registry.names import parse_reference
from kinetic_images.registry.registry import Registry
from kinetic_images.targets import Target
from kinetic_payload.layout import build_resolution

_FORMAT: Final = 2


Resolution = tuple[BaseImage, Lock]
"""What a request for an image was resolved to."""


def resolve_on(
    base: str,
    request: LockRequest,
    *,
    home: Path,
    registry: Registry,
    shared: SharedRecords | None,
    environ: Mapping[str, str] | None,
    report: Callable[[str], None],
    repository: str,
    refresh: bool = False,
) -> Resolution:
    """Return the resolution of *request* on the image *base*: one of this machine, a shared one, or a new one.

    *refresh* makes a new one in any case. *repository* is where the image will be pushed: if it cannot be read,
    nothing new is shared. What depends on a folder of packages on this machine is not shared.

    Raises:
        DependencyError, InstallError: See `ensure_lock`.
        ImageNotFoundError, RegistryError: See `find_base`.
    """
    assert request.target is not None, "images have a target"
    target = request.target
    key = _key(base, request)
    path, name = home / "cache" / "images" / f"{key}.json", build_resolution(key)
    if any(local_folder(index) for index in request.dependencies.indexes):
        shared = None
    if not refresh:
        found = _usable(find_record(path), target, request)
        if found is not None:
            return found
        seen = None if shared is None else shared.find(name)
        found = _usable(seen, target, request)
        if seen is not None and found is not None:
            source = request.dependencies.source
            if source is not None:
                report(f"The dependencies in {source} were resolved before, and shared.")
            keep_record(path, seen)
            return found
    image = find_base(base, target.python, target.machine, registry, home)
    lock = ensure_lock(
        replace(request, target=image.target, platform=image.target.platform),
        home=home,
        environ=environ,
        report=report,
        refresh=refresh,
    )
    if shared is not None and (text := shared_lock_text(lock, request)) is not None:
        registry.digest(repository)
        kept = shared.offer(name, _record(image, text), replace=refresh)
        # Another version of Kinetic may have written what is there.
        if (usable := _usable(kept, target, request)) is not None:
            keep_record(path, kept)
            return usable
    keep_record(path, _record(image, lock_text(lock)))
    return image, lock


def _key(base: str, request: LockRequest) -> str:
    """Return the digest of everything that decides on the resolution of *request* on the image *base*."""
    assert request.target is not None, "images have a target"
    ingredients = {**request.ingredients, "base": base}
    text = json.dumps([_FORMAT, request.target.machine, ingredients], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


class _Record(msgspec.Struct, frozen=True):
    """A resolution as it is kept: JSON."""

    base: str
    glibc: tuple[int, int]
    labelled: bool
    lock: str


def _record(base: BaseImage, lock: str) -> dict[str, Any]:
    return msgspec.structs.asdict(_Record(base.reference, base.target.glibc, base.labelled, lock))


def _usable(
    record: Mapping[str, Any] | None, target: Target, request: LockRequest
) -> Resolution | None:
    try:
        found = msgspec.convert(record, _Record)
        is_exact = parse_reference(found.base).digest is not None
    except (msgspec.ValidationError, InvalidReferenceError):
        return None
    lock = usable_lock(found.lock, request) if is_exact else None
    if lock is None:
        return None
    return BaseImage(found.base, replace(target, glibc=found.glibc), found.labelled), lock
