"""Resolutions: the base and the exact packages of an image, kept on this machine and shared with others."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec

from kinetic_images.bases import BaseImage, find_base
from kinetic_images.declared.uv_settings import Index
from kinetic_images.errors import InvalidReferenceError
from kinetic_images.kept_records import find_record, keep_record
from kinetic_images.lock.cache import (
    ensure_lock,
    lock_text,
    same_files,
    shared_lock_text,
    usable_lock,
)
from kinetic_images.lock.folders import portable
from kinetic_images.lock.packages import Lock, LockedPackage
from kinetic_images.lock.request import LockRequest
from kinetic_images.registry.names import parse_reference
from kinetic_images.registry.registry import Registry
from kinetic_images.shared_records import SharedRecords
from kinetic_images.targets import Target
from kinetic_payload.layout import build_resolution

_FORMAT: Final = 1


@dataclass(frozen=True)
class Resolution:
    """What a request for an image was resolved to."""

    base: BaseImage
    lock: Lock


@dataclass(frozen=True, kw_only=True)
class Resolutions:
    """The resolutions of this machine, in *home*, and those that machines share, if there are any."""

    home: Path
    registry: Registry
    shared: SharedRecords | None
    environ: Mapping[str, str] | None
    report: Callable[[str], None]
    sharing: Callable[[], object] = lambda: None
    """Called before something new is shared; it may raise what would make that useless."""

    def get(
        self,
        base: str,
        request: LockRequest,
        *,
        refresh: bool = False,
        instead_of: Sequence[LockedPackage] | None = None,
    ) -> Resolution:
        """Return the resolution of *request* on the image *base*: a kept one, a shared one, or a new one.

        *refresh* makes a new one in any case. *instead_of* are packages that cannot be used any more: a
        resolution with exactly these is replaced, here and for others, unless another process has done so. It
        keeps its base image.

        Raises:
            DependencyError, InstallError: See `ensure_lock`.
            ImageNotFoundError, RegistryError: See `find_base`.
        """
        assert request.target is not None, "images have a target"
        target = request.target
        path = self.home / "cache" / "images" / f"{_key(base, request)}.json"

        def is_wanted(found: Resolution | None) -> bool:
            return found is not None and not (
                instead_of is not None and same_files(found.lock.packages, instead_of)
            )

        replaced, record = None, None
        if not refresh:
            found = _usable(find_record(path), target, request)
            if found is not None and is_wanted(found):
                return found
            replaced = found
            record = None if self.shared is None else self.shared.find(_shared_name(base, request))
            found = _usable(record, target, request)
            if record is not None and found is not None and is_wanted(found):
                source = request.dependencies.source
                if source is not None:
                    self.report(f"The dependencies in {source} were resolved before, and shared.")
                keep_record(path, record)
                return found
            replaced = replaced or found
        made = self._make(base, request, refresh, instead_of, replaced)
        kept = self._share(
            base, request, record, made, refresh=refresh, supersede=instead_of is not None
        )
        usable = _usable(kept, target, request)
        # Another version of Kinetic wrote it, or a machine whose folders have other files of the same names.
        if kept is None or usable is None or not is_wanted(usable):
            kept, usable = _record(made, lock_text(made.lock)), made
        keep_record(path, kept)
        return usable

    def _make(
        self,
        base: str,
        request: LockRequest,
        refresh: bool,
        instead_of: Sequence[LockedPackage] | None,
        replaced: Resolution | None,
    ) -> Resolution:
        assert request.target is not None
        found = (
            replaced.base
            if replaced is not None
            else find_base(base, request.target.python, request.target.machine, self.registry)
        )
        lock = ensure_lock(
            replace(request, target=found.target, platform=found.target.platform),
            home=self.home,
            environ=self.environ,
            report=self.report,
            refresh=refresh,
            instead_of=instead_of,
        )
        return Resolution(found, lock)

    def _share(
        self,
        base: str,
        request: LockRequest,
        seen: dict[str, Any] | None,
        made: Resolution,
        *,
        refresh: bool,
        supersede: bool,
    ) -> dict[str, Any] | None:
        """Share *made*; return the record that others find, or None if it cannot be shared."""
        text = None if self.shared is None else shared_lock_text(made.lock, request)
        if self.shared is None or text is None:
            return None
        self.sharing()
        name, record = _shared_name(base, request), _record(made, text)
        if supersede:
            return self.shared.supersede(name, seen, record)
        return self.shared.offer(name, record, replace=refresh)


def _key(base: str, request: LockRequest, place: Callable[[Index], str] | None = None) -> str:
    """Return the digest of everything that decides on the resolution of *request* on the image *base*."""
    assert request.target is not None, "images have a target"
    ingredients = {**request.ingredients(place), "base": base}
    text = json.dumps([_FORMAT, request.target.machine, ingredients], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _shared_name(base: str, request: LockRequest) -> str:
    """Return the name of the shared record, which does not depend on the paths of this machine."""
    return build_resolution(_key(base, request, portable))


class _Record(msgspec.Struct, frozen=True):
    """A resolution as it is kept: JSON."""

    base: str
    glibc: tuple[int, int]
    labelled: bool
    lock: str


def _record(resolution: Resolution, lock: str) -> dict[str, Any]:
    base = resolution.base
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
    return Resolution(
        BaseImage(found.base, replace(target, glibc=found.glibc), found.labelled), lock
    )
