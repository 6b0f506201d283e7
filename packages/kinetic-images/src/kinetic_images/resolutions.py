"""Resolutions: the base and the exact packages of an image, kept on this machine and shared with others."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec

from kinetic_images.bases import BaseImage, find_base
from kinetic_images.declared.uv_settings import Index
from kinetic_images.errors import InvalidReferenceError
from kinetic_images.kept_records import SharedRecords, find_record, keep_record
from kinetic_images.lock.cache import (
    ensure_lock,
    lock_text,
    portable,
    same_files,
    shared_lock_text,
    usable_lock,
)
from kinetic_images.lock.packages import Lock, LockedPackage
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
    instead_of: Sequence[LockedPackage] | None = None,
) -> Resolution:
    """Return the resolution of *request* on the image *base*: one of this machine, a shared one, or a new one.

    *refresh* makes a new one in any case. *instead_of* are packages that cannot be used any more: a
    resolution with exactly these is replaced, here and for others, unless another process has done so. It
    keeps its base image. *repository* is where the image will be pushed: if it cannot be read, nothing new is
    shared.

    Raises:
        DependencyError, InstallError: See `ensure_lock`.
        ImageNotFoundError, RegistryError: See `find_base`.
    """
    assert request.target is not None, "images have a target"
    target = request.target
    path = home / "cache" / "images" / f"{_key(base, request)}.json"
    name = build_resolution(_key(base, request, portable))  # Without paths of this machine.

    def is_wanted(found: Resolution) -> bool:
        return instead_of is None or not same_files(found[1].packages, instead_of)

    replaced = seen = None
    if not refresh:
        replaced = _usable(find_record(path), target, request)
        if replaced is not None and is_wanted(replaced):
            return replaced
        seen = None if shared is None else shared.find(name)
        found = _usable(seen, target, request)
        if seen is not None and found is not None and is_wanted(found):
            source = request.dependencies.source
            if source is not None:
                report(f"The dependencies in {source} were resolved before, and shared.")
            keep_record(path, seen)
            return found
        replaced = replaced or found
    image = (
        replaced[0] if replaced else find_base(base, target.python, target.machine, registry, home)
    )
    lock = ensure_lock(
        replace(request, target=image.target, platform=image.target.platform),
        home=home,
        environ=environ,
        report=report,
        refresh=refresh,
        instead_of=instead_of,
    )
    kept = None
    text = None if shared is None else shared_lock_text(lock, request)
    if shared is not None and text is not None:
        registry.digest(repository)
        superseded = None if instead_of is None else seen
        kept = shared.offer(name, _record(image, text), instead_of=superseded, replace=refresh)
    usable = _usable(kept, target, request)
    # Another version of Kinetic wrote it, or a machine whose folders have other files of the same names.
    if kept is None or usable is None or not is_wanted(usable):
        kept, usable = _record(image, lock_text(lock)), (image, lock)
    keep_record(path, kept)
    return usable


def _key(base: str, request: LockRequest, place: Callable[[Index], str] | None = None) -> str:
    """Return the digest of everything that decides on the resolution of *request* on the image *base*."""
    assert request.target is not None, "images have a target"
    ingredients = {**request.ingredients(place), "base": base}
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
